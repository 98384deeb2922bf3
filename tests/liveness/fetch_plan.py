"""The run that a seed makes of the fetcher of Kafka alone: partitions, rates and faults."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Literal

from tests.liveness.plan import Burst

_PARTITIONS = (1, 2, 4, 4, 4, 8, 16, 30, 60)
_ROOM = 1 << 20
_CROWDED = 0.4
_RATES = (1, 20, 100, 500, 1_000, 1_000, 5_000, 50_000)


@dataclass(frozen=True, slots=True)
class Event:
    """An event at a time (s), for so many seconds, of a share of the partitions or of a broker."""

    kind: Literal["pause", "seek", "leave out", "outage", "lead", "forget"]
    begin: float
    seconds: float = 0.0
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """One run: `pairs` says that tasks read two topics, and the records of one only as far as there are some of the other."""

    seed: int
    partitions: int
    pairs: bool
    brokers: int
    latency: float
    reaction: float
    room: int
    limit: int
    speed: int
    bursts: tuple[Burst, ...]
    events: tuple[Event, ...]
    record_bytes: int
    options: dict[str, int] = field(default_factory=dict)

    @property
    def bound(self) -> float:
        """How long (s) readable records may wait: a broker waits for half a second at most, and not when there are records.

        Where a response has room for one partition only, each has its turn.
        """
        turn = 2 * self.latency + self.options["linger_ms"] / 1000
        narrow = min(self.options["fetch_max_bytes"], self.options["max_partition_fetch_bytes"]) < _ROOM
        return 0.6 + 2 * turn + (turn * self.partitions * len(self.topics) if narrow else 0.0)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are read."""
        return ("a", "b") if self.pairs else ("a",)


def draw_fetching(seed: int) -> FetchPlan:
    """Return the plan of a seed."""
    random = Random(seed)
    partitions, pairs = random.choice(_PARTITIONS), random.random() < 0.4
    record_bytes = random.choice((20, 100, 100, 1_000))
    per_partition = random.choice((1_000, 4_000, 1 << 20, 1 << 20))
    options = {"max_partition_fetch_bytes": per_partition, "fetch_max_bytes": max(per_partition, random.choice((2_000, 10_000, 50_000, 52_428_800)))}
    if crowded := pairs and random.random() < _CROWDED:
        # One topic fills what there is room for, and waits for the other.
        per_partition = options["max_partition_fetch_bytes"] = 1_000
        options["fetch_max_bytes"] = 2_000
    narrow = min(options.values()) < _ROOM
    options["linger_ms"] = random.choice((0, 5) if narrow else (0, 5, 10, 10, 100))
    bursts = tuple(burst for topic in (("a", "b") if pairs else ("a",)) for burst in _bursts(random, topic))
    last = max(burst.begin + burst.count / burst.rate for burst in bursts)
    return FetchPlan(
        seed=seed,
        partitions=partitions,
        pairs=pairs,
        brokers=random.choice((1, 1, 1, 2, 3)),
        latency=random.choice((0.0, 0.001, 0.003) if narrow else (0.0, 0.001, 0.003, 0.02)),
        reaction=random.choice((0.0, 0.002, 0.01)),
        room=random.choice((0, 1, 100, 100)),
        limit=2 if crowded else random.choice((2, 20, 200, 200, 5_000)),
        speed=random.choice((50, 1_000, 100_000, 100_000)),
        bursts=bursts,
        events=_events(random, last),
        record_bytes=record_bytes,
        options=options,
    )


def _bursts(random: Random, topic: str) -> list[Burst]:
    found = []
    begin = random.choice((0.0, 0.0, 0.3, 2.0))
    for _ in range(random.choice((1, 1, 2, 3))):
        rate = random.choice(_RATES)
        count = min(random.choice((5, 100, 1_000, 3_000)), rate * 6)
        found.append(Burst(topic, begin, rate, count, random.choice((None, None, None, 1, 2))))
        begin += count / rate + random.choice((0.0, 0.1, 0.7, 3.0))
    return found


def _events(random: Random, last: float) -> tuple[Event, ...]:
    found = []
    for _ in range(random.choice((0, 0, 1, 2, 4))):
        begin, share = random.uniform(0.0, last), random.choice((0.1, 0.5, 1.0))
        match random.choice(("pause", "pause", "seek", "leave out", "outage", "lead", "forget")):
            case "pause":
                found.append(Event("pause", begin, random.choice((0.05, 0.6, 3.0)), share))
            case "seek":
                found.append(Event("seek", begin, 0.0, share))
            case "leave out":
                found.append(Event("leave out", begin, random.choice((0.05, 1.0)), share))
            case "outage":
                found.append(Event("outage", begin, random.choice((0.1, 2.0))))
            case "lead":
                found.append(Event("lead", begin, 0.0, share))
            case _:
                found.append(Event("forget", begin))
    return tuple(sorted(found, key=lambda event: event.begin))
