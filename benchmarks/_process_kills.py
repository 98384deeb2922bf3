"""Kill -9 of members under load, for benchmarks/processes.py: the time without results, and the records lost or doubled.

A program of several members counts records, which come at an even rate. Its results are read as they become readable. A
member is killed, and its supervisor starts it again; then the next one is killed.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import time
from bisect import bisect_right
from collections import Counter
from functools import partial
from itertools import cycle, pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from rich.table import Table

from benchmarks import _kafka_process as process
from benchmarks._measure import Spread
from benchmarks._member_app import Said, program
from ks_actors import Batch
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition
from ks_actors.records._partitioner import partitions_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from ks_actors.log import Log

    # The key, the timestamp (ms) and the count of a result.
    Row = tuple[bytes | None, int, bytes | None]

EXACT = "exactly_once_v2"
KILLS, MEMBERS, RATE, KEYS = 6, 3, 3_000, 6_000
PARTITIONS = 6
VALUE = b"x" * 100
TICK_S = 0.01
WINDOW_S = 4.0
"""Seconds of load before a kill, and at least as many after it."""
TIMEOUT_S = 300
PATIENCE_S = 30


class Gaps(NamedTuple):
    """The longest times (ms) without results of a partition, around a kill.

    `back` is that of the killed member's partitions, `idle` that of the others, both without the typical gap between
    results; `raw_back` and `raw_idle` are with it. `usual` is the longest one before the kill.
    """

    back: float
    idle: float
    raw_back: float
    raw_idle: float
    usual: float


class Steps(NamedTuple):
    """The way back (ms): from the kill to the new process, from there to the end of its imports, and so on."""

    process: float
    imports: float
    join: float
    """Until the app asks for its tasks: the log is open, and the supervisor lets it join."""
    tasks: float
    """Until all its tasks run."""
    results: float
    """Until each of its partitions has results."""
    cpu: float
    """The CPU time of the new process until its tasks run."""


class Kills(NamedTuple):
    """All kills under one guarantee. `moved` is the number of tasks that another member had meanwhile."""

    gaps: list[Gaps]
    steps: list[Steps]
    sent: int
    lost: int
    doubled: int
    moved: int

    def wrong(self, guarantee: str) -> bool:
        """Return whether the guarantee is broken, or a task has moved."""
        return bool(self.lost or self.moved or (guarantee == EXACT and self.doubled))


def longest_gap(times: Sequence[float], since: float, until: float) -> float:
    """Return the longest gap (s) between the sorted `times` of results; that at `since` counts from its beginning.

    The gap at `until` counts up to there.
    """
    first, last = bisect_right(times, since), bisect_right(times, until)
    seen = [times[first - 1] if first else since, *times[first:last], until]
    return max(later - earlier for earlier, later in pairwise(seen))


def typical_gap(times: Sequence[float], since: float, until: float) -> float:
    """Return the median gap (s) between results in that time; 0 if there are fewer than two of them."""
    seen = times[bisect_right(times, since) : bisect_right(times, until)]
    return median(later - earlier for earlier, later in pairwise(seen)) if len(seen) > 1 else 0.0


def gaps_around(times: Mapping[int, Sequence[float]], own: Collection[int], killed: float, until: float) -> Gaps:
    """Return the gaps around a kill by the times (s) of results by partition; `own` are those of the killed member."""
    raw = {number: longest_gap(each, killed, until) for number, each in times.items()}
    more = {number: gap - typical_gap(times[number], killed - WINDOW_S, killed) for number, gap in raw.items()}
    others = times.keys() - set(own)
    seconds = (
        *(max(gaps[number] for number in numbers) for gaps in (more, raw) for numbers in (own, others)),
        max(longest_gap(each, killed - WINDOW_S, killed) for each in times.values()),
    )
    return Gaps(*(1000 * each for each in seconds))


class Member:
    """A member process by its words: its tasks, the time (s) of its start, and its first word in each state.

    `place` is the number of the member that it is, and stays when it is started again.
    """

    def __init__(self, pid: int, place: int) -> None:
        self.pid: int = pid
        self.place: int = place
        self.began: float = process.begun_at(pid)
        self.state: str = ""
        self.tasks: frozenset[str] = frozenset()
        self.entered: dict[str, Said] = {}

    def hear(self, said: Said) -> None:
        """Take a word."""
        self.state, self.tasks = said.state, frozenset(said.tasks)
        self.entered.setdefault(said.state, said)


class Members:
    """The members of one program. A task counts as moved when a member has it at another place than at `settle`."""

    def __init__(self, count: int) -> None:
        self.living: dict[int, Member] = {}
        """By place."""
        self.moved: set[tuple[str, int]] = set()
        self._free: list[int] = list(range(count))
        self._places: dict[int, int] = {}
        self._killed: set[int] = set()
        self._homes: dict[str, int] = {}

    def hear(self, line: bytes) -> None:
        """Take a line of any member."""
        said = msgspec.json.decode(line, type=Said)
        if said.pid in self._killed:
            return
        if said.pid not in self._places:
            place = self._places[said.pid] = self._free.pop()
            self.living[place] = Member(said.pid, place)
        member = self.living[self._places[said.pid]]
        member.hear(said)
        self.moved |= {(task, member.place) for task in member.tasks if self._homes.get(task, member.place) != member.place}

    def settle(self) -> list[Member]:
        """Let tasks count as moved from now on; return the members."""
        self._homes = {task: member.place for member in self.living.values() for task in member.tasks}
        return list(self.living.values())

    def kill(self, member: Member) -> float:
        """Kill a member; return the time (s)."""
        self._killed.add(member.pid)
        self._free.append(member.place)
        del self.living[member.place]
        killed = time.monotonic()
        os.kill(member.pid, signal.SIGKILL)
        return killed

    def all_run(self) -> bool:
        """Return whether all members run, and have all tasks, each at least one."""
        tasks = [task for member in self.living.values() for task in member.tasks]
        run = all(member.state == "RUNNING" and member.tasks for member in self.living.values())
        return run and not self._free and len(tasks) == len(set(tasks)) == PARTITIONS


class Load:
    """Records at an even rate. The key and the timestamp tell a record: those of one key are more than a millisecond apart."""

    def __init__(self, log: Log, topic: str, keys: int, rate: int) -> None:
        self.fed: Counter[Row] = Counter()
        """The results that there must be: key, timestamp (ms) and count."""
        self.ends: bool = False
        self._log: Log = log
        self._rate: int = rate
        self._places: list[TopicPartition] = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        names = [b"k%07d" % number for number in range(keys)]
        columns: list[list[bytes]] = [[] for _ in self._places]
        for name, number in zip(names, partitions_of(names, PARTITIONS), strict=True):
            columns[number].append(name)
        self._keys = [cycle(column) for column in columns]
        self._most: int = min(map(len, columns))
        self._counts: Counter[bytes] = Counter()

    async def run(self) -> None:
        """Send until `ends`, the same number to each partition."""
        producer = await self._log.producer(client_id="load")
        began, sent = time.monotonic(), 0
        while not self.ends:
            due = int((time.monotonic() - began) * self._rate / PARTITIONS)
            count = min(due - sent, self._most)
            if count:
                stamp = int(time.time() * 1000)
                await producer.send([self._batch(place, count, stamp) for place in self._places])
                sent += count
            await asyncio.sleep(TICK_S)
        await producer.close()

    def _batch(self, place: TopicPartition, count: int, stamp: int) -> Outgoing:
        keys = [next(self._keys[place.partition]) for _ in range(count)]
        for key in keys:
            self._counts[key] += 1
            self.fed[key, stamp, self._counts[key].to_bytes(8)] += 1
        return Outgoing(place, Batch(list(keys), [VALUE] * count, [stamp] * count))


class Results:
    """The results as they become readable: their times (s, by partition) and rows."""

    def __init__(self, log: Log, topic: str) -> None:
        self.times: dict[int, list[float]] = {number: [] for number in range(PARTITIONS)}
        self.rows: Counter[Row] = Counter()
        self.places: list[TopicPartition] = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        self.ends: Mapping[TopicPartition, int] = dict.fromkeys(self.places, sys.maxsize)
        """The offsets at which reading ends."""
        self._log: Log = log
        self._seen: set[tuple[bytes | None, int]] = set()

    @property
    def records(self) -> int:
        """The number of records that have a result."""
        return len(self._seen)

    async def run(self) -> None:
        """Read until `ends`."""
        fetcher = self._log.fetcher(client_id="results", isolation=IsolationLevel.READ_COMMITTED)
        fetcher.assign(dict.fromkeys(self.places, 0))
        while any(fetcher.position(place) < end for place, end in self.ends.items()):
            for fetched in await fetcher.fetch(max_wait_ms=1_000):
                if len(fetched.batch):
                    self._take(fetched.partition.partition, fetched.batch)
        await fetcher.close()

    def _take(self, number: int, batch: Batch) -> None:
        self.times[number].append(time.monotonic())
        self.rows.update(zip(batch.keys, batch.timestamps, batch.values, strict=True))
        self._seen.update(zip(batch.keys, batch.timestamps, strict=True))


def lost_and_doubled(fed: Counter[Row], rows: Counter[Row], *, exact: bool) -> tuple[int, int]:
    """Return the numbers of missing and of additional results.

    A count may be too high where a record may be counted twice, so it only matters if `exact`.
    """
    if not exact:
        fed, rows = _without_counts(fed), _without_counts(rows)
    return (fed - rows).total(), (rows - fed).total()


def _without_counts(rows: Counter[Row]) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for (key, stamp, _), copies in rows.items():
        found[key, stamp, None] += copies
    return found


async def measure_kills(log: Log, guarantee: str, bootstrap: str, *, kills: int, count: int, rate: int, keys: int) -> Kills:
    """Kill so many of `count` members, one after the other.

    A run of the program has each of them killed once: after its second death within a minute a member rests.
    """
    found = Kills([], [], 0, 0, 0, 0)
    while len(found.gaps) < kills:
        more = await _run(log, guarantee, bootstrap, min(count, kills - len(found.gaps)), count, rate, keys)
        found = Kills(
            found.gaps + more.gaps,
            found.steps + more.steps,
            found.sent + more.sent,
            found.lost + more.lost,
            found.doubled + more.doubled,
            found.moved + more.moved,
        )
    return found


async def _run(log: Log, guarantee: str, bootstrap: str, kills: int, count: int, rate: int, keys: int) -> Kills:
    source, sink = (f"kills-{word}-{time.time_ns()}" for word in ("in", "out"))
    await log.create_topics([NewTopic(topic, PARTITIONS) for topic in (source, sink)])
    load, results, members = Load(log, source, keys, rate), Results(log, sink), Members(count)
    settings = {"bootstrap.servers": bootstrap, "processing.guarantee": guarantee}
    gaps: list[Gaps] = []
    steps: list[Steps] = []
    # A garbage collection here would look like a time without results.
    gc.disable()
    try:
        async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks, program(count, "count", [source], sink, settings) as running:
            hear = partial(_hear, running, members)
            await hear(members.all_run)
            reading, feeding = tasks.create_task(results.run()), tasks.create_task(load.run())
            await hear(lambda: all(results.times.values()))
            for member in members.settle()[:kills]:
                await hear(_over(time.monotonic() + WINDOW_S))
                gap, way = await _kill(member, members, results, hear)
                gaps.append(gap)
                steps.append(way)
                print(f"{guarantee}: a member was killed, its results are back in {gap.back:,.0f} ms", file=sys.stderr)
            load.ends = True
            await feeding
            late = _over(time.monotonic() + PATIENCE_S)
            await hear(lambda: results.records == load.fed.total() or late())
            running.send_signal(signal.SIGTERM)
            await running.communicate()
            if running.returncode:
                raise SystemExit(f"count in {count} processes: exit code {running.returncode}")
            # The close may have added some.
            results.ends = await log.end_offsets(results.places, IsolationLevel.READ_COMMITTED)
            await reading
    finally:
        gc.enable()
    lost, doubled = lost_and_doubled(load.fed, results.rows, exact=guarantee == EXACT)
    return Kills(gaps, steps, load.fed.total(), lost, doubled, len(members.moved))


def _over(moment: float) -> Callable[[], bool]:
    return lambda: time.monotonic() > moment


async def _hear(running: asyncio.subprocess.Process, members: Members, enough: Callable[[], bool]) -> None:
    """Hear the members until there is enough; they speak every 50 ms."""
    lines = running.stdout or asyncio.StreamReader()
    while not enough():
        line = await lines.readline()
        if not line:
            raise SystemExit(f"the program has ended with exit code {await running.wait()}")
        members.hear(line)


async def _kill(member: Member, members: Members, results: Results, hear: Callable[[Callable[[], bool]], Awaitable[None]]) -> tuple[Gaps, Steps]:
    """Kill a member, and wait until its successor has results."""
    own = {int(task.rpartition("_")[2]) for task in member.tasks}
    killed = members.kill(member)
    await hear(members.all_run)
    successor = members.living[member.place]
    made, asking, running = (successor.entered[state] for state in ("CREATED", "REBALANCING", "RUNNING"))
    await hear(lambda: all(results.times[number][-1] > running.moment for number in own))
    await hear(_over(killed + WINDOW_S))
    back = max(results.times[number][bisect_right(results.times[number], running.moment)] for number in own)
    way = (killed, successor.began, made.moment, asking.moment, running.moment, back)
    steps = [later - earlier for earlier, later in pairwise(way)]
    return gaps_around(results.times, own, killed, time.monotonic()), Steps(*(1000 * each for each in (*steps, running.cpu)))


def tables(found: Mapping[str, Kills], title: str) -> list[Table]:
    """Return a table of the figures by guarantee, and one of the steps of the way back."""
    figures, steps = Table(title=title), Table(title="the way back of a killed member, ms")
    for table, names in ((figures, ("kills", "lost", "doubled", "moved", *Gaps._fields)), (steps, Steps._fields)):
        table.add_column("")
        for name in names:
            table.add_column(name.replace("_", " "), justify="right")
    for guarantee, kills in found.items():
        counts = (len(kills.gaps), kills.lost, kills.doubled, kills.moved)
        figures.add_row(guarantee, *map(str, counts), *map(_shown, zip(*kills.gaps, strict=True)))
        steps.add_row(guarantee, *map(_shown, zip(*kills.steps, strict=True)))
    return [figures, steps]


def _shown(samples: Sequence[float]) -> str:
    low, middle, high = Spread.of(samples)
    return f"{middle:,.0f} ({low:,.0f}-{high:,.0f})"


def summary(found: Mapping[str, Kills]) -> dict[str, dict[str, float]]:
    """Return the figures by guarantee: medians, and the largest of the gaps."""
    return {
        guarantee: {
            "kills": len(kills.gaps),
            "sent": kills.sent,
            "lost": kills.lost,
            "doubled": kills.doubled,
            "moved": kills.moved,
            **{f"{name}_ms": round(median(each), 1) for name, each in _columns(kills)},
            **{f"{name}_most_ms": round(max(each), 1) for name, each in _columns(kills)},
        }
        for guarantee, kills in found.items()
    }


def _columns(kills: Kills) -> list[tuple[str, list[float]]]:
    columns = zip(*kills.gaps, strict=True), zip(*kills.steps, strict=True)
    names = Gaps._fields, Steps._fields
    return [(name, list(each)) for fields, found in zip(names, columns, strict=True) for name, each in zip(fields, found, strict=True)]
