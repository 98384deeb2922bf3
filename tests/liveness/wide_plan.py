"""The run that a seed of the wide layer makes: operations and faults that the first layer does not have."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from random import Random

from tests.liveness.plan import Fault, Lane, Plan, Shape, draw

_SHAPES: tuple[Shape, ...] = ("batch", "distinct", "gather", "asof", "foreign", "final", "recount", "map")
_REFUSED = ("send", "commit", "commit_offsets", "committed", "end_offsets", "describe_topics", "fetch")
_ANSWER_LOST = frozenset({"send", "commit", "commit_offsets"})
_SLACK_S = 20.0


def draw_wide(seed: int) -> Plan:
    """Return the plan of a seed: the first layer's, with other operations, standbys and more faults."""
    random = Random(f"wide {seed}")
    plan = draw(seed)
    lanes = tuple(replace(lane, shape=_shape(random, lane), priority=0) for lane in plan.lanes)
    bursts = [burst for burst in plan.bursts if any(burst.topic in lane.topics for lane in lanes)]
    for lane in lanes:
        # A topic that the first layer's lane did not have gets the records of the other one.
        for topic in lane.topics:
            if not any(burst.topic == topic for burst in bursts):
                bursts += [replace(burst, topic=topic) for burst in bursts if burst.topic == lane.topics[0]]
    last = max(burst.begin + burst.count / burst.rate for burst in bursts)
    topics = {topic for lane in lanes for topic in lane.topics}
    faults = [fault for fault in plan.faults if not fault.topic or fault.topic in topics]
    faults += [_fault(random, last) for _ in range(random.choice((0, 1, 1, 2, 3, 8)))]
    config = {**plan.config, "num_standby_replicas": random.choice((0, 0, 1))}
    return replace(
        plan, lanes=lanes, bursts=tuple(bursts), faults=tuple(sorted(faults, key=attrgetter("begin"))), config=config, slack=_slack(lanes, faults)
    )


def _shape(random: Random, lane: Lane) -> Shape:
    shape = random.choice(_SHAPES)
    # Tasks run in threads or on the loop: batches that are awaited are not for those that hold a thread.
    return "map" if shape == "batch" and lane.work.kind == "blocking" else shape


def _fault(random: Random, last: float) -> Fault:
    begin = round(random.uniform(0.0, last + 1.0), 3)
    match random.choice(("worker", "expelled", "restart", "refused", "refused")):
        case "worker":
            return Fault("worker", begin, random.choice((0.1, 5.0)))
        case "expelled":
            return Fault("expelled", begin, 0.0)
        case "restart":
            return Fault("restart", begin, random.choice((0.0, 2.0)))
        case _:
            lost, operation = random.choice((0.0, 1.0)), random.choice(_REFUSED)
            # A size of 1: the log does what it was asked to do, and its answer is lost.
            return Fault("refused", begin, 0.0, lost if operation in _ANSWER_LOST else 0.0, operation)


def _slack(lanes: tuple[Lane, ...], faults: list[Fault]) -> float:
    """Return how much longer tasks may wait: rollbacks and rebalances make calls anew, and tasks that move wait for the commit of their owner."""
    return (_SLACK_S if faults else 0.0) + 3 * max((lane.work.seconds for lane in lanes), default=0.0)
