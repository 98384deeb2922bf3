"""The draw of a seed of whole apps: a plan of the liveness test on a small scale, and the cluster that it runs on."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from random import Random
from typing import TYPE_CHECKING, Final

from tests.liveness.plan import Burst, Fault, Lane, Plan, draw
from tests.liveness.wide_plan import draw_wide
from tests.simulation.cluster import Manners, draw_manners
from tests.simulation.members import FAULTS as MEMBERS_FAULTS

if TYPE_CHECKING:
    from typing import Any

KINDS: Final = (*MEMBERS_FAULTS, "forget", "controller codes")
# What else happens to instances; the cluster's own faults take the place of the others.
_BEFALLS: Final = frozenset({"pause", "join", "crash", "set back", "worker", "restart"})
_MOST_PARTITIONS: Final = 4
_MOST_LANES: Final = 2
_MOST_RECORDS: Final = 150
_LATEST_S: Final = 15.0
_STATIC: Final = 0.2
# The `topic` of a fault that begins when the group's next generation has begun, `size` seconds later.
GENERATION: Final = "the next generation"
# Final results come by the clock after minutes of silence, in which there is nothing to see here.
_SHAPES: Final = {"final": "recount"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AppsPlan(Plan):
    """A plan, and its cluster. Its faults are over at `healthy_at`; `strict_after` (s) is how long apps may take then to be as before."""

    brokers: int
    instances: int
    replication: int
    codec: int
    manners: Manners
    kinds: tuple[str, ...]
    healthy_at: float
    strict_after: float
    static: tuple[int, ...]
    """The numbers of the instances that are static members of their group."""

    def told(self) -> str:
        """Say it, a thing a line."""
        names = ("brokers", "instances", "replication", "codec", "manners", "kinds", "healthy_at", "strict_after", "static")
        return "\n".join((Plan.told(self), *(f"  {name} = {getattr(self, name)}" for name in names)))


def draw_apps(seed: int) -> AppsPlan:
    """Return the plan of a seed."""
    random = Random(f"apps {seed}")
    plan = random.choice((draw, draw_wide))(seed)
    lanes = tuple(_smaller(lane) for lane in plan.lanes[:_MOST_LANES])
    topics = {topic for lane in lanes for topic in lane.topics}
    bursts = tuple(_shorter(burst) for burst in plan.bursts if burst.topic in topics and burst.begin < _LATEST_S)
    befalls = tuple(_sooner(fault) for fault in plan.faults if fault.kind in _BEFALLS)
    brokers = random.choice((1, 2, 3))
    kinds: tuple[str, ...] = ()
    if random.random() < 0.8:
        kinds = tuple(sorted(random.sample(KINDS, random.choice((2, 4, 8)))))
    manners = draw_manners(random)
    config = _config(random, plan)
    patience = (config["request_timeout_ms"] + config["socket_connection_setup_timeout_ms"]) / 1000
    # A member whose request to join waits at a machine that is gone has no answer until the rebalance is over, as in Kafka's clients.
    ends = (config["session_timeout_ms"] + config["max_poll_interval_ms"]) / 1000 + manners.first_join
    if plan.exactly_once:
        ends += config["transaction_timeout_ms"] / 1000 + manners.transaction_look
    values: dict[str, Any] = {each.name: getattr(plan, each.name) for each in fields(Plan)}
    values |= {"lanes": lanes, "bursts": bursts, "faults": befalls, "config": config, "latency": 0.05}
    healthy_at = random.choice((4.0, 8.0, 15.0)) if kinds else 0.0
    strict_after = (3 * patience + ends + 5.0) if kinds else manners.first_join
    static, more = _static(seed, config["session_timeout_ms"] / 1000)
    if static:
        # The tasks of a static member that does not return wait for it.
        strict_after = max(strict_after, ends)
        values["faults"] += more
    # Some records come when bounds are strict again.
    later = healthy_at + strict_after + random.choice((0.0, 5.0))
    values["bursts"] += tuple(Burst(topic, later, random.choice((2, 50)), random.choice((3, 20)), None) for topic in sorted(topics))
    # Whoever has lost an answer, or waits for one of a connection that leads nowhere, finds that out at a timeout.
    values["slack"] = 2.0 + 20 * manners.lag + (2 * patience if kinds or befalls else 0.0)
    return AppsPlan(
        **values,
        brokers=brokers,
        instances=max(random.choice((1, 1, 2, 3)), 2 if static else 1),
        replication=random.choice((1, brokers, brokers)),
        codec=random.choice((0, 0, 1, 2, 3, 4)),
        manners=manners,
        kinds=kinds,
        healthy_at=healthy_at,
        strict_after=strict_after,
        static=static,
    )


def _static(seed: int, session_s: float) -> tuple[tuple[int, ...], tuple[Fault, ...]]:
    """Return the instances that are static members, in a fifth of the seeds, and what befalls them.

    They come back within their session or after it; some end when a generation has just begun, with tasks that they have yet to give up.
    """
    random = Random(f"static {seed}")
    if random.random() >= _STATIC:
        return (), ()
    numbers = tuple(number for number in range(1, 20) if random.random() < 0.8)
    faults = []
    for _ in range(random.choice((1, 2, 4))):
        begin, away = round(random.uniform(0.0, _LATEST_S), 3), random.choice((0.0, session_s / 2, session_s + 0.5, session_s + 0.5))
        faults.append(Fault(random.choice(("crash", "restart")), begin, away))
        again, later = random.choice((0.0, 0.3, session_s / 2, session_s + 0.5)), random.choice((0.0, 0.01, 0.05, 0.3))
        faults.append(Fault(random.choice(("crash", "restart")), begin + away, again, later, GENERATION))
    return numbers, tuple(faults)


def _smaller(lane: Lane) -> Lane:
    return replace(lane, partitions=min(lane.partitions, _MOST_PARTITIONS), shape=_SHAPES.get(lane.shape, lane.shape))  # type: ignore[arg-type]


def _shorter(burst: Burst) -> Burst:
    return replace(burst, count=min(burst.count, _MOST_RECORDS, max(1, int(burst.rate * _LATEST_S))))


def _sooner(fault: Fault) -> Fault:
    return replace(fault, begin=min(fault.begin, _LATEST_S))


def _config(random: Random, plan: Plan) -> dict[str, Any]:
    request_ms = random.choice((1_000, 3_000, 10_000))
    return {
        "num_standby_replicas": random.choice((0, 0, 1)),
        **plan.config,
        "commit_interval_ms": min(plan.config["commit_interval_ms"], 5_000),
        "default_dsl_store": random.choice(("in_memory", "in_memory", "rocksdb")),
        "session_timeout_ms": random.choice((3_000, 6_000, 10_000)),
        "max_poll_interval_ms": random.choice((10_000, 20_000)),
        "request_timeout_ms": request_ms,
        "socket_connection_setup_timeout_ms": random.choice((500, 2_000)),
        "default_api_timeout_ms": max(request_ms, random.choice((2_000, 60_000))),
        "retry_backoff_ms": random.choice((5, 50)),
        "max_in_flight_requests_per_connection": random.choice((1, 4)),
        "producer_compression_type": random.choice(("none", "none", "gzip", "snappy", "lz4", "zstd")),
        "batch_size": random.choice((1_000, 1_000_000)),
        "linger_ms": random.choice((0, 5, 20)),
        "repartition_purge_interval_ms": random.choice((0, 1_000, 30_000)),
        "metadata_max_age_ms": random.choice((5_000, 300_000)),
    }
