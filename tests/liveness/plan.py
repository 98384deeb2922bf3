"""The run that a seed makes: its topology, settings, input and faults."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal, TypeAlias

from ks_actors.config._settings import SETTINGS

Shape: TypeAlias = Literal["map", "count", "recount", "merge", "join", "enrich", "tick", "batch", "distinct", "gather", "asof", "foreign", "final"]
Kind: TypeAlias = Literal["plain", "async", "blocking"]
Order: TypeAlias = Literal["key", "partition", "none"]

EOS = "exactly_once_v2"
TWO_INPUTS = frozenset({"merge", "join", "enrich", "asof", "foreign"})
_SHAPES: tuple[Shape, ...] = ("map", "count", "recount", "merge", "join", "enrich", "tick")
_PARTITIONS = (1, 1, 2, 2, 3, 4, 4, 6, 8, 12, 20, 40, 60)
_RATES = (1, 3, 10, 50, 200, 1_000, 5_000, 50_000)
_CALLS_S = (0.001, 0.001, 0.02, 0.3, 2.0, 10.0)
_LONGEST_CALL_EOS_S = 2.0
_MOST_WORK_S = 40.0


@dataclass(frozen=True, slots=True)
class Burst:
    """So many records for a topic, at a rate (records/s) from a time (s) on; for `spread` of its partitions, None: for all."""

    topic: str
    begin: float
    rate: int
    count: int
    spread: int | None


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a lane's first function at each record: none, a call that waits, or one that holds its thread, for `seconds`."""

    kind: Kind = "plain"
    seconds: float = 0.0
    max_in_flight: int = 100
    order: Order = "key"


@dataclass(frozen=True, slots=True)
class Lane:
    """One pipeline: a subtopology of its own (two with a repartition), its input topics, its work, and how urgent its tasks are."""

    name: str
    shape: Shape
    partitions: int
    work: Work
    priority: int = 0

    @property
    def topics(self) -> tuple[str, ...]:
        """The input topics."""
        return (f"{self.name}-a", f"{self.name}-b") if self.shape in TWO_INPUTS else (f"{self.name}-a",)

    @property
    def has_store(self) -> bool:
        """Whether its tasks have state."""
        return self.shape not in {"map", "merge", "tick", "batch"}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that begins at a time (s) and lasts so many seconds; `size` says how large it is, `topic` which topic or operation it meets."""

    kind: Literal["outage", "slow commits", "pause", "reset", "join", "crash", "set back", "worker", "expelled", "restart", "refused"]
    begin: float
    seconds: float
    size: float = 0.0
    topic: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that one run is."""

    seed: int
    lanes: tuple[Lane, ...]
    bursts: tuple[Burst, ...]
    faults: tuple[Fault, ...]
    latency: float
    config: dict[str, Any] = field(default_factory=dict)
    slack: float = 0.0
    """How much longer (s) than by the rule anything may take."""

    @property
    def exactly_once(self) -> bool:
        """Whether results must be there exactly once."""
        return bool(self.config["processing_guarantee"] == EOS)

    @property
    def stands_still_to_commit(self) -> bool:
        """Whether workers may have to wait for the end of each commit: a thread is at stores, or stores may hold next to nothing uncommitted."""
        in_threads = any(lane.work.kind == "blocking" for lane in self.lanes) and any(lane.has_store for lane in self.lanes)
        return in_threads or 0 <= self.config["statestore_uncommitted_max_bytes"] < 1 << 20

    def told(self) -> str:
        """Say it, a thing a line."""
        lines = [f"seed {self.seed}, latency {self.latency} s", *(f"  {name} = {value}" for name, value in sorted(self.config.items()))]
        return "\n".join((*lines, *(f"  {each}" for each in (*self.lanes, *self.bursts, *self.faults))))


def draw(seed: int) -> Plan:
    """Return the plan of a seed."""
    random = Random(seed)
    eos = random.random() < 0.4
    lanes = _lanes(random, eos=eos)
    config = _config(random, eos=eos, lanes=lanes)
    bursts = tuple(burst for lane in lanes for topic in lane.topics for burst in _bursts(random, lane, topic))
    last = max(burst.begin + burst.count / burst.rate for burst in bursts)
    faults = _lengthened(_faults(random, lanes, last, config), seed)
    return Plan(seed, lanes, bursts, faults, random.choice((0.0, 0.0, 0.001, 0.02)), config)


def _lanes(random: Random, *, eos: bool) -> tuple[Lane, ...]:
    urgent = random.random() < 0.4
    lanes = []
    for number in range(random.choice((1, 1, 2, 2, 3))):
        work = _work(random, eos=eos)
        # A lane that holds threads has few tasks, and few threads.
        partitions = min(random.choice(_PARTITIONS), 3 if work.kind == "blocking" else 60 // (number + 1))
        lanes.append(Lane(f"l{number}", random.choice(_SHAPES), partitions, work, random.choice((0, 1, 5)) if urgent else 0))
    return tuple(lanes)


def _work(random: Random, *, eos: bool) -> Work:
    kind = random.choice(("plain", "plain", "async", "async", "blocking"))
    if kind == "blocking":
        return Work("blocking", random.choice((0.001, 0.005, 0.02)))
    if kind == "async":
        seconds = random.choice(_CALLS_S)
        order: Order = random.choice(("key", "partition", "none"))
        return Work("async", min(seconds, _LONGEST_CALL_EOS_S) if eos else seconds, random.choice((1, 2, 10, 100)), order)
    return Work()


def _bursts(random: Random, lane: Lane, topic: str) -> list[Burst]:
    found = []
    begin = random.choice((0.0, 0.0, 1.0, 5.0))
    work = lane.work
    for _ in range(random.choice((1, 1, 2, 3))):
        rate = random.choice(_RATES)
        count = min(random.choice((1, 5, 20, 60, 150)), rate * 15)
        if work.kind == "blocking" and random.random() < 0.5:
            # Just as much as one worker can do, or a little more, for long.
            rate = max(1, round(random.uniform(0.5, 1.3) / max(work.seconds, 0.005)))
            count = min(1_500, rate * random.choice((5, 15)))
            if lane.priority:
                # Tasks of a higher priority always have something to do.
                rate, count = round(1.5 / max(work.seconds, 0.02)), 1_000
        spread = random.choice((None, None, 1, 2))
        if work.seconds:
            lines = 1 if work.kind == "blocking" else work.max_in_flight * (lane.partitions if spread is None else min(spread, lane.partitions))
            count = max(1, min(count, int(_MOST_WORK_S * lines / work.seconds)))
            if work.kind == "async" and work.order == "key":
                count = min(count, max(2, int(60 / work.seconds)))
        found.append(Burst(topic, round(begin, 3), rate, count, spread))
        begin += count / rate + random.choice((0.0, 0.05, 0.6, 3.0, 12.0))
    return found


def _config(random: Random, *, eos: bool, lanes: tuple[Lane, ...]) -> dict[str, Any]:
    config: dict[str, Any] = {
        "processing_guarantee": EOS if eos else "at_least_once",
        "commit_interval_ms": random.choice((100, 200, 1_000) if eos else (100, 1_000, 1_000, 5_000, 30_000)),
        "buffered_records_per_partition": random.choice((1, 2, 5, 20, 5_000, 5_000)),
        "input_buffer_max_bytes": random.choice((1, 500, 3_000, -1, 512 << 20, 512 << 20)),
        "statestore_uncommitted_max_bytes": random.choice((1, 2_000, -1, 64 << 20, 64 << 20, 64 << 20)),
        "statestore_cache_max_bytes": random.choice((0, 0, 1, 10 << 20)),
        "max_task_idle_ms": random.choice((-1, 0, 0, 0, 100, 3_000)),
        "num_workers": 1 if any(lane.work.kind == "blocking" for lane in lanes) else random.choice((1, 1, 2, 4)),
        "poll_ms": random.choice((100, 100, 500, 1_000)),
        "session_timeout_ms": 6_000,
        "default_dsl_store": "in_memory" if random.random() < 0.95 else "rocksdb",
    }
    if eos:
        config["transaction_timeout_ms"] = 20_000
    if "linger_ms" in SETTINGS:
        config["linger_ms"] = random.choice((0, 5, 5, 100))
    return config


def _lengthened(faults: tuple[Fault, ...], seed: int) -> tuple[Fault, ...]:
    """Have some outages last for longer than a client waits for one answer."""
    longer = Random(f"outages of {seed}")  # beside the others: a seed that was found stays the one that it is
    return tuple(
        replace(fault, seconds=longer.choice((70.0, 100.0, 150.0))) if fault.kind == "outage" and longer.random() < 0.4 else fault for fault in faults
    )


def _faults(random: Random, lanes: tuple[Lane, ...], last: float, config: dict[str, Any]) -> tuple[Fault, ...]:
    found = []
    for _ in range(random.choice((0, 1, 1, 2, 2, 3))):
        begin = round(random.uniform(0.0, last + 1.0), 3)
        match random.choice(("outage", "slow commits", "pause", "pause and reset", "reset", "join", "crash", "set back")):
            case "outage":
                found.append(Fault("outage", begin, random.choice((0.2, 3.0, 20.0))))
            case "slow commits":
                longest = 4.0 if config["processing_guarantee"] == EOS else 8.0
                found.append(Fault("slow commits", begin, random.choice((5.0, 15.0)), random.choice((0.3, longest))))
            case "pause":
                found.append(Fault("pause", begin, random.choice((0.1, 2.0, 8.0))))
            case "pause and reset":
                lane = random.choice(lanes)
                found.append(Fault("pause", begin, 8.0))
                found += [Fault("reset", begin + 4.0, 0.0, random.choice((0.5, 1.0, 1.0)), topic) for topic in lane.topics[:1]]
            case "reset":
                lane = random.choice(lanes)
                found.append(Fault("reset", begin, 0.0, random.choice((0.5, 1.0)), random.choice(lane.topics)))
            case "join":
                found.append(Fault("join", begin, random.choice((0.5, 5.0))))
            case "crash":
                found.append(Fault("crash", begin, random.choice((0.0, 2.0))))
            case _:
                found.append(Fault("set back", begin, 0.0, random.choice((2.0, 3_600.0))))
    return tuple(sorted(found, key=lambda fault: fault.begin))
