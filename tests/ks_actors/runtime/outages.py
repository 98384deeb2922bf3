"""A log that goes away and comes back, as its clients see it; and the state that stores must keep meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, ParamSpec, TypeVar

from ks_actors import LogError, LogTimeout, StateError
from ks_actors.log import IsolationLevel, Log, TopicPartition
from ks_actors.state import SharedResources
from ks_actors.state.core._key_ranges import after
from ks_actors.state.disk import TaskEngine
from ks_actors.state.disk._manifest import Manifest, read_offset
from ks_actors.state.disk._rocksdb import RocksEngine
from ks_actors.task._store_registry import RegisteredStores, Role
from ks_actors.testing import AppHarness
from ks_actors.testing._connection import Connection
from tests.layouts import LAYOUT, database_of

STORE = "counts"
CHANGELOG = "app-counts-changelog"
LATER, ANSWER_LATER, LOST, LOST_BUT_DONE = "later", "answer later", "lost", "lost, but done"
_WRITES = frozenset({"send", "commit", "abort"})
# So many are written while the log goes away: of these it is the commit that is hit.
_LAST_SENDS = 0.8
P = ParamSpec("P")
T = TypeVar("T")


class Weather:
    """Whether the log is there for its clients: from `down` to `up` no call gets an answer.

    What is asked for meanwhile is done when the log is back, as clients repeat it; or had been done before it went. The end of a transaction may be
    given up as well, after `patience` seconds: done or not, which the producer finds out with an `abort`, as that of Kafka does. `fates` counts what
    has become of writes.
    """

    def __init__(self, random: Random, patience: float) -> None:
        self.fates: Counter[str] = Counter()
        self._random: Random = random
        self._patience: float = patience
        self._back: asyncio.Event = asyncio.Event()
        self._back.set()
        self._breaks_at: str = ""
        self._reads_until: float = 0.0
        self._unheard_aborts: int = 0
        self._undecided: dict[Any, bool] = {}

    @property
    def is_down(self) -> bool:
        """Whether it is away."""
        return not self._back.is_set()

    @property
    def reads(self) -> bool:
        """Whether there are records to return: those fetched ahead are there a little longer than the log."""
        return not self.is_down or asyncio.get_running_loop().time() < self._reads_until

    def down(self) -> None:
        """Be away from now on."""
        self._back.clear()
        self._reads_until = asyncio.get_running_loop().time() + self._random.choice((0.0, 0.25, 0.25))

    def down_at(self, call: str) -> None:
        """Be away from the next call of this name on, from any caller."""
        self._breaks_at = call

    def up(self) -> None:
        """Be back."""
        self._breaks_at = ""
        self._back.set()

    async def back(self) -> None:
        """Wait until it is there."""
        await self._back.wait()

    async def carry(self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call of a client."""
        name = getattr(call, "__name__", "")
        if name == self._breaks_at:
            self._breaks_at = ""
            self.down()
            if name == "fetch":
                # Nothing was fetched ahead of it.
                self._reads_until = 0.0
        if name in _WRITES:
            return await self._write(name, call, *args, **kwargs)
        if name in {"event", "fetch"}:
            result = await call(*args, **kwargs)
            if name == "event" or not self.reads:
                await self.back()
            return result
        await self.back()
        return await call(*args, **kwargs)

    async def _write(self, name: str, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        producer = getattr(call, "__self__", None)
        if name == "abort" and self._unheard_aborts:
            self._unheard_aborts -= 1
            raise LogTimeout("the log does not answer")
        if producer in self._undecided:
            return await self._find_out(name, producer, call, *args, **kwargs)
        if not self.is_down or (name == "send" and self.reads and self._random.random() < _LAST_SENDS):
            return await call(*args, **kwargs)
        fate = self._random.choice((LATER, LATER, ANSWER_LATER, LOST, LOST_BUT_DONE) if name == "commit" else (LATER, ANSWER_LATER))
        self.fates[f"{name} {fate}"] += 1
        if fate == LATER:
            await self.back()
        if fate != LOST:
            result = await call(*args, **kwargs)
            if fate == ANSWER_LATER:
                await self.back()
            if fate != LOST_BUT_DONE:
                return result
        await asyncio.sleep(self._patience)
        self._undecided[producer] = fate == LOST_BUT_DONE
        self._unheard_aborts = self._random.choice((0, 0, 1, 3))
        raise LogTimeout("the log does not say what has become of the commit")

    async def _find_out(self, name: str, producer: Any, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        if name != "abort":
            raise LogError("it is not known how the last transaction has ended: abort finds out")
        await self.back()
        if self._undecided.pop(producer):
            raise LogError("the last transaction cannot be aborted: it was committed")
        return await call(*args, **kwargs)


class Line(Connection):
    """A process's way to a log in such weather."""

    def __init__(self, weather: Weather, log: Log) -> None:
        super().__init__(log)
        self._weather = weather

    async def through(self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call, when the log lets it through."""

        async def carried() -> T:
            return await self._weather.carry(call, *args, **kwargs)

        return await super().through(carried)


# --- what must hold -----------------------------------------------------------------------------------------------------------


def committed_counts(registered: RegisteredStores) -> Counter[str]:
    """Return the committed counts of a task's store, during any transaction or commit."""
    store: Any = registered.stores._stores[STORE]
    codec, engine, prefix = store.codec, store.engine, store.prefix
    found: dict[bytes, Any] = {}
    if engine is not None:
        found = {key[len(prefix) :]: codec.entry(codec.from_engine(value)) for key, value in engine.scan(prefix, after(prefix))}
    for source in (store._restored_writing, store._restored):
        found.update({key: None if raw is None else codec.entry(raw) for key, raw in source.items()})
    for key in list(store._view):
        value = store.view(committed=True)(key)
        if type(value) is tuple or value is None:
            found[codec.index_bytes(key)] = value
    return Counter({key.decode(): entry[0] for key, entry in found.items() if entry is not None})


def check_memory(harness: AppHarness) -> None:
    """Each task that is processed holds as many counts as its committed position says that it has read records."""
    for registered in () if harness._app is None else harness._app._registry:
        if registered.role is Role.ACTIVE:
            total, position = committed_counts(registered).total(), sum(registered.positions.values())
            assert total == position, f"task {registered.task} of {harness.config.client_id}: {total} counts, {position} records committed"


async def check_disk(harness: AppHarness) -> int:
    """The rows on disk of each task, with the rest of the changelog, equal the changelog; return how many tasks have rows there."""
    shared = SharedResources()
    checked = 0
    for directory in sorted(harness.state_dir.glob("*_*")):
        stored, offset = _stored(directory, shared)
        if offset is None:
            continue  # nothing of it counts: all is restored
        records = await _records(harness, TopicPartition(CHANGELOG, int(directory.name.rpartition("_")[2])))
        wanted = {key: count for _, key, count in records}
        found = {**stored, **{key: count for at, key, count in records if at >= offset}}
        wrong = {key: (found.get(key), wanted.get(key)) for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key)}
        assert not wrong, f"task {directory.name} of {harness.config.client_id}, at {offset}: counts found and wanted {wrong}"
        checked += 1
    return checked


def _stored(directory: Path, shared: SharedResources) -> tuple[dict[str, int], int | None]:
    database = database_of(directory)
    if not database.is_dir():
        return {}, None
    try:
        whole = RocksEngine(directory.name, database, shared, read_only=True)
    except StateError:
        return {}, None  # there was no time to make it
    engine = whole if LAYOUT == "task" else TaskEngine(directory.name, whole)
    try:
        facts = Manifest.read(engine, directory.name).stores.get(STORE)
        offset = read_offset(engine, STORE)
        if facts is None:
            return {}, offset
        prefix = bytes((facts.id,))
        return {key[1:].decode(): _count(value) for key, value in engine.scan(prefix, after(prefix))}, offset
    finally:
        whole.close()


async def _records(harness: AppHarness, partition: TopicPartition) -> list[tuple[int, str, int]]:
    """Return offset, key and count of all that is committed in a changelog."""
    batches = await harness._batches(partition, 0, IsolationLevel.READ_COMMITTED)
    return [
        (offset, (key or b"").decode(), _count(value or b""))
        for batch in batches
        for offset, key, value in zip(batch.offsets, batch.keys, batch.values, strict=True)
    ]


def _count(data: bytes) -> int:
    """Return the count of a record, or of a row, which begins with its time."""
    return int.from_bytes(data[-8:], "big", signed=True)
