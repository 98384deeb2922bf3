"""A ledger of the records that were sent and read, and of the results that have to come out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from ks_actors.records._partitioner import partition as partition_of
from ks_actors.testing import TestRecord
from tests.liveness.plan import Lane

GROUPS = 7


class Wrong(AssertionError):
    """Something is missing in the results, or is there more often than it may be."""


class Sent(NamedTuple):
    """A record as it was sent."""

    lane: Lane
    topic: str
    partition: int
    key: str


class Place(NamedTuple):
    """A task as one can see it from outside: a part of a lane ("in", or "by" behind a repartition) and a partition."""

    lane: str
    part: str
    partition: int


def group_of(value: str) -> str:
    """Return the key that a record is grouped by."""
    return f"g{int(value) % GROUPS}"


class Ledger:
    """Keep sent and read values. `waiting` counts the records of each place that its first function has not seen, `read` all calls of that."""

    def __init__(self) -> None:
        self.sent: dict[str, Sent] = {}
        self.waiting: Counter[Place] = Counter()
        self.read: Counter[Place] = Counter()
        self.ticks: Counter[Place] = Counter()
        # Deleted before they were known to be processed: they may be in the results or not.
        self.optional: set[str] = set()
        self._unread: dict[str, Place] = {}
        self._behind: dict[str, Place] = {}
        self._passed: set[str] = set()
        self._in_order: defaultdict[tuple[str, int], list[str]] = defaultdict(list)

    def send(self, lane: Lane, topic: str, partition: int, key: str) -> str:
        """Take note of a record to be sent; return its value."""
        value = str(len(self.sent))
        self.sent[value] = Sent(lane, topic, partition, key)
        self._in_order[topic, partition].append(value)
        self._wait(self._unread, value, Place(lane.name, "in", partition))
        return value

    def _wait(self, where: dict[str, Place], value: str, place: Place) -> None:
        where[value] = place
        self.waiting[place] += 1

    def _go_on(self, where: dict[str, Place], value: str) -> None:
        place = where.pop(value, None)
        if place is not None:
            self.waiting[place] -= 1

    def note(self, value: str) -> str:
        """Take note that the first function of a lane was called with a record; return the value."""
        self._go_on(self._unread, value)
        lane, _, partition, _ = self.sent[value]
        self.read[Place(lane.name, "in", partition)] += 1
        if lane.shape == "recount" and value not in self._passed and value not in self.optional:
            self._passed.add(value)
            self._wait(self._behind, value, self._place_behind(lane, value))
        return value

    def arrive(self, value: str) -> None:
        """Take note that a record has come out of a repartition topic."""
        self._go_on(self._behind, value)
        self.read[self._place_behind(self.sent[value].lane, value)] += 1

    def _place_behind(self, lane: Lane, value: str) -> Place:
        return Place(lane.name, "by", partition_of(group_of(value).encode(), lane.partitions))

    def tick(self, lane: Lane, partition: int) -> None:
        """Take note of a punctuation."""
        self.ticks[Place(lane.name, "in", partition)] += 1

    def delete(self, topic: str, partition: int, before: int, committed: int) -> None:
        """Take note that the records of a partition below an offset are deleted; those from the committed offset on may not have been processed."""
        for value in self._in_order[topic, partition][committed:before]:
            self.optional.add(value)
            self._go_on(self._unread, value)
            # A crash while it is in flight loses it for good.
            self._go_on(self._behind, value)

    # --- results --------------------------------------------------------------------------------------------------------------

    def check(self, lane: Lane, out: Iterable[TestRecord[str, str]], *, exactly_once: bool) -> None:
        """Check the output of a lane. Raises Wrong."""
        mine = {value: sent for value, sent in self.sent.items() if sent.lane is lane}
        match lane.shape:
            case "count" | "recount":
                self._check_counts(lane, mine, out, exactly_once=exactly_once)
                return
            case "final":
                self._check_windows(lane, mine, out, exactly_once=exactly_once)
                return
            case "foreign":
                self._check_rows(lane, out)
                return
        found = Counter(str(record.value) for record in out)
        if lane.shape == "join":
            surely, perhaps = self._pairs(lane, mine)
        else:
            wanted = {value for value, sent in mine.items() if lane.shape not in {"enrich", "asof"} or sent.topic == lane.topics[0]}
            surely, perhaps = wanted - self.optional, wanted
        missing = sorted(surely - found.keys())
        strange = sorted(found.keys() - perhaps)
        doubled = sorted(value for value, count in found.items() if count > 1) if exactly_once else []
        if missing or strange or doubled:
            raise Wrong(f"{lane.name}: of {len(surely)} results {missing[:9]} are missing, {doubled[:9]} are doubled, {strange[:9]} are strange")

    def _pairs(self, lane: Lane, mine: dict[str, Sent]) -> tuple[set[str], set[str]]:
        sides: tuple[dict[str, str], dict[str, str]] = ({}, {})
        for value, sent in mine.items():
            sides[lane.topics.index(sent.topic)][sent.key] = value
        both = [(value, sides[1][key]) for key, value in sides[0].items() if key in sides[1]]
        surely = {f"{one}+{other}" for one, other in both if not self.optional & {one, other}}
        return surely, {f"{one}+{other}" for one, other in both}

    def _check_windows(self, lane: Lane, mine: dict[str, Sent], out: Iterable[TestRecord[str, str]], *, exactly_once: bool) -> None:
        """Check final results: one of each window, and together all records; at least once some of each key, as records done again may be late."""
        results = [(str(record.key), int(record.value or 0)) for record in out]
        windows = Counter(window for window, _ in results)
        found: Counter[str] = Counter()
        for window, count in results:
            found[window.partition("@")[0]] += count
        most = Counter(sent.key for sent in mine.values())
        least = Counter(sent.key for value, sent in mine.items() if value not in self.optional)
        doubled = [window for window, count in windows.items() if count > 1] if exactly_once else []
        wrong = [
            key for key in most if found[key] < (least[key] if exactly_once else min(1, least[key])) or (exactly_once and found[key] > most[key])
        ]
        if doubled or wrong:
            told = [(key, found[key], least[key], most[key]) for key in wrong[:9]]
            raise Wrong(
                f"{lane.name}: windows {doubled[:9]} have several final results; of these keys there are results, records at least, at most: {told}"
            )

    def _check_rows(self, lane: Lane, out: Iterable[TestRecord[str, str]]) -> None:
        """Check the results of a join of tables: the last one of each key is of its last row."""
        last = {str(record.key): str(record.value) for record in out}
        rows: defaultdict[str, list[str]] = defaultdict(list)
        for (topic, _), values in self._in_order.items():
            if topic == lane.topics[0]:
                for value in values:
                    rows[self.sent[value].key].append(value)
        any_order = lane.work.kind == "async" and lane.work.order == "none"
        for key, values in rows.items():
            sure = [number for number, value in enumerate(values) if value not in self.optional]
            fit = {*values[sure[-1] if sure and not any_order else 0 :], *(() if sure else ("None",))}
            if last.get(key, "None") not in fit:
                raise Wrong(f"{lane.name}: the last result of {key} is {last.get(key)}, its last row was {values[-1]}")

    def _check_counts(self, lane: Lane, mine: dict[str, Sent], out: Iterable[TestRecord[str, str]], *, exactly_once: bool) -> None:
        last = {record.key: int(record.value or 0) for record in out}
        least: Counter[str] = Counter()
        most: Counter[str] = Counter()
        for value, sent in mine.items():
            key = group_of(value) if lane.shape == "recount" else sent.key
            most[key] += 1
            least[key] += value not in self.optional
        for key, count in least.items():
            found = last.get(key, 0)
            if found < count or (exactly_once and found > most[key]):
                raise Wrong(f"{lane.name}: the last count of {key} is {found}, there were {count} to {most[key]} records of it")
