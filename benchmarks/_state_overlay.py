"""Counting in a transactional store and in RocksDB directly: cost per record and per commit.

Both do the work of a count: read, add one, write, and append to the changelog. The direct one
writes each record to RocksDB and to the changelog at once, as Kafka Streams does without a cache.
The transactional one writes the last value of each key to the changelog on commit. It writes to
RocksDB in steps when enough has accumulated.
"""

from __future__ import annotations

import gc
import shutil
import struct
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import rocksdict

from ks_actors import Batch, TaskId
from ks_actors.processors.aggregates._aggregates import StreamCount
from ks_actors.processors.api import NodeContext
from ks_actors.serdes import LONG, STRING
from ks_actors.state import SharedResources, TaskStores
from ks_actors.topology import StoreKind, StoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, MutableMapping
    from typing import Never

    from ks_actors.processors.api import IdleNode, Process, ProcessBatch
    from ks_actors.serdes import Serde

_SPEC = StoreSpec(name="counts", kind=StoreKind.TIMESTAMPED_KEY_VALUE, key=STRING, value=LONG, type="rocksdb")
_ENTRY = struct.Struct(">qq")
_STEP = 1_000


class Outcome(NamedTuple):
    """The rate, and the longest time without a turn for others."""

    records_per_s: float
    worst_stall_ms: float


class _Context(NodeContext):
    """The parts of a node's context that a count needs.

    It names the contract that it keeps, so that type checkers miss members that it does not have.
    """

    application_id = "bench"
    task_id = TaskId(0, 0)
    node = "count"
    kafka_streams_faults = False
    leaves_out = False
    caching = False

    def __init__(self, store: Any) -> None:
        self._store = store

    def store(self, name: str) -> Any:
        return self._store

    def cache(self, store: str, *, send_old: bool) -> None:
        """Do nothing: no cache."""

    @property
    def forward(self) -> Process:
        return _drop

    @property
    def forward_batch(self) -> ProcessBatch:
        return _drop

    @property
    def children(self) -> Mapping[str, Process]:
        return {}

    @property
    def children_batch(self) -> Mapping[str, ProcessBatch]:
        return {}

    def dropped(self, count: int = 1, *, told: bool = True) -> None:
        raise AssertionError(f"{count} records were dropped")

    def failed(self, error: BaseException, *_: object, **__: object) -> Never:
        raise error

    @property
    def progress(self) -> MutableMapping[str, int]:
        return _not_needed()

    def origins(self) -> Never:
        _not_needed()

    def key_serde(self, serde: Serde[Any] | None) -> Never:
        _not_needed()

    def value_serde(self, serde: Serde[Any] | None) -> Never:
        _not_needed()

    def schedule(self, interval_ms: int, punctuation: str, callback: Callable[[int], None], start_ms: int | None = None) -> Never:
        _not_needed()

    def when_idle(self, after_ms: int, node: IdleNode, /) -> Never:
        _not_needed()

    def when_made(self, make: Callable[[], None], init: Callable[[], None]) -> Never:
        _not_needed()

    def stream_time(self) -> int:
        return _not_needed()

    def wall_time(self) -> int:
        return _not_needed()

    def request_commit(self) -> None:
        _not_needed()

    def record_metadata(self) -> None:
        _not_needed()


def _drop(*_: object) -> None:
    """Do nothing: downstream is not measured."""


def _not_needed() -> Never:
    raise NotImplementedError("a count does not need this of its context; see benchmarks/_state_overlay.py")


def transactional(keys: list[str], commit_s: float) -> Outcome:
    """Count in a store as operators use it."""
    with _opened() as stores:
        return _transactional(stores, keys, commit_s)


def _transactional(stores: TaskStores, keys: list[str], commit_s: float) -> Outcome:
    store = stores.store("counts")
    logged = 0
    context = _Context(store)
    operator = StreamCount(store="counts").bind(context)
    run = cast("Callable[[Batch], None]", operator.batch)

    def count(part: list[str], now: int) -> None:
        run(Batch(part, [b""] * len(part), [now] * len(part)))

    def commit(pause: Callable[[], None]) -> None:
        nonlocal logged
        token = stores.freeze()
        pause()
        for _, batch in stores.changelog(token):
            logged += len(batch)
            pause()
        stores.publish(token, {"counts": logged})
        pause()
        for _ in stores.flush_steps() if stores.wants_flush(idle=False) else ():
            pause()

    return _drive(keys, commit_s, count, commit)


@contextmanager
def _opened() -> Iterator[TaskStores]:
    directory = Path(tempfile.mkdtemp(prefix="ks-bench-"))
    shared = SharedResources(block_cache_bytes=50 << 20, write_buffer_bytes=16 << 20)
    stores = TaskStores("0_0", [_SPEC], directory=directory / "0_0", shared=shared, record_time=lambda: 0, expired=lambda _: None)
    stores.open()
    try:
        yield stores
    finally:
        stores.close(clean=False)
        shared.close()
        shutil.rmtree(directory)


class _Steps:
    """Turns of others, and the longest time between two of them (s)."""

    def __init__(self) -> None:
        self.worst: float = 0.0
        self.turn: float = time.perf_counter()

    def pause(self) -> None:
        """Record a turn of others."""
        now = time.perf_counter()
        self.worst = max(self.worst, now - self.turn)
        self.turn = now


def large_commit(uncommitted_bytes: int) -> tuple[float, float]:
    """Commit `uncommitted_bytes` at once, and write them.

    Return the longest time (ms) without a turn for others, for each of the two.
    """
    with _opened() as stores:
        store = stores.store("counts")
        number = 0
        while stores.uncommitted_bytes < uncommitted_bytes:
            store.put_entry(f"k{number:07d}", (number, number))
            number += 1
        gc.collect()  # the puts are not measured
        steps = _Steps()
        token = stores.freeze()
        steps.pause()
        for _ in stores.changelog(token):
            steps.pause()
        stores.publish(token, {"counts": number})
        steps.pause()
        commit = steps.worst
        steps = _Steps()
        for _ in stores.flush_steps():
            steps.pause()
        return commit * 1000, steps.worst * 1000


def direct(keys: list[str], commit_s: float) -> Outcome:
    """Count in RocksDB, record by record."""
    directory = Path(tempfile.mkdtemp(prefix="ks-bench-"))
    options = rocksdict.Options(raw_mode=True)
    options.set_write_buffer_size(16 << 20)
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(rocksdict.Cache(50 << 20))
    table.set_bloom_filter(10, False)
    options.set_block_based_table_factory(table)
    write: Any = rocksdict.WriteOptions()
    write.disable_wal = True
    database = rocksdict.Rdict(str(directory / "db"), options)
    database.set_write_options(write)
    log: list[tuple[bytes, bytes, int]] = []

    def count(part: list[str], now: int) -> None:
        for key in part:
            encoded = key.encode()
            found = database.get(encoded)
            number = 1 if found is None else _ENTRY.unpack(found)[1] + 1
            database[encoded] = _ENTRY.pack(now, number)
            log.append((encoded, number.to_bytes(8, "big"), now))

    def commit(pause: Callable[[], None]) -> None:
        log.clear()
        pause()

    try:
        return _drive(keys, commit_s, count, commit)
    finally:
        database.close()
        shutil.rmtree(directory)


def _drive(keys: list[str], commit_s: float, count: Callable[[list[str], int], None], commit: Callable[[Callable[[], None]], None]) -> Outcome:
    steps = _Steps()
    began = steps.turn
    due = began + commit_s
    for start in range(0, len(keys), _STEP):
        count(keys[start : start + _STEP], start)
        steps.pause()
        if steps.turn >= due:
            commit(steps.pause)
            due = steps.turn + commit_s
    commit(steps.pause)
    return Outcome(len(keys) / (time.perf_counter() - began), steps.worst * 1000)
