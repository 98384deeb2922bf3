"""A task's stores with the changelog that a broker would hold of them."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from types import NoneType
from typing import Any
from unittest.mock import patch

from ks_actors.records._batch import Batch
from ks_actors.serdes import BYTES, LONG, STRING
from ks_actors.state import SharedResources, TaskStores, attach
from ks_actors.state.core import _transactional
from ks_actors.topology._stores import StoreKind, StoreSpec
from tests.ks_actors.state.sqlite_engine import SqliteEngine
from tests.layouts import LAYOUT

Record = tuple[bytes, bytes | None, int]

PLACES = ("in_memory", "rocksdb", "shared", "rocksdb without directory", "engine")
"""Where stores live: a dict, RocksDB, one RocksDB for all tasks, a dict that behaves as RocksDB does, or an engine of the user's own."""


ADVANCE_MS = 0
"""Windows start at multiples of it, unless a test says otherwise."""


def key_value(name: str = "s", *, timestamped: bool = False, key: Any = STRING, value: Any = LONG, **options: Any) -> StoreSpec:
    kind = StoreKind.TIMESTAMPED_KEY_VALUE if timestamped else StoreKind.KEY_VALUE
    return StoreSpec(name=name, kind=kind, key=key, value=value, **options)


def window(
    name: str = "s", *, timestamped: bool = False, key: Any = STRING, value: Any = STRING, retention_ms: int = 100, **options: Any
) -> StoreSpec:
    kind = StoreKind.TIMESTAMPED_WINDOW if timestamped else StoreKind.WINDOW
    options.setdefault("advance_ms", ADVANCE_MS)
    return StoreSpec(
        name=name, kind=kind, key=key, value=value, retention_ms=retention_ms, window_size_ms=options.pop("window_size_ms", 10), **options
    )


def session(name: str = "s", *, key: Any = STRING, value: Any = STRING, retention_ms: int = 100, **options: Any) -> StoreSpec:
    return StoreSpec(name=name, kind=StoreKind.SESSION, key=key, value=value, retention_ms=retention_ms, **options)


def versioned(name: str = "s", *, key: Any = STRING, value: Any = STRING, history_retention_ms: int = 100, **options: Any) -> StoreSpec:
    return StoreSpec(name=name, kind=StoreKind.VERSIONED, key=key, value=value, history_retention_ms=history_retention_ms, **options)


VALUES: dict[Any, Callable[[int], Any]] = {
    LONG: lambda n: n - 5 << n % 50,
    STRING: lambda n: "é" * (n % 3) + str(n),
    BYTES: lambda n: b"%d" % n * (n % 9),
}
"""Values of the serdes that the kernel knows, of all sizes."""


def store_of(kind: str, key: Any, value: Any, *, timestamped: bool = True) -> StoreSpec:
    if kind == "key-value":
        return key_value(timestamped=timestamped, key=key, value=value)
    return window(timestamped=timestamped, key=key, value=value, retention_ms=1 << 40, advance_ms=10 if kind == "panes" else 0)


def put(store: Any, kind: str, key: Any, number: int, entry: tuple[Any, int] | None) -> None:
    """Put an entry, of windows into one of seven."""
    if kind == "key-value":
        store.put_entry(key, entry)
    else:
        store.put_entry(key, number % 7 * 10, entry)


def memory_grown(once: Callable[[], None]) -> int:
    """Return how many bytes Python has more after doing something twenty times over."""
    tracemalloc.start()
    try:
        once()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            once()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


class Task:
    """One task, its stores and its changelogs."""

    def __init__(self, specs: Sequence[StoreSpec], tmp_path: Path, place: str = "rocksdb", shared: SharedResources | None = None) -> None:
        store_type: Any = "in_memory" if place == "in_memory" else SqliteEngine if place == "engine" else "rocksdb"
        self.specs: list[StoreSpec] = [
            StoreSpec(**{name: getattr(spec, name) for name in spec.__struct_fields__} | {"type": store_type}) for spec in specs
        ]
        self.directory: Path | None = tmp_path / "0_3" if place != "rocksdb without directory" else None
        self.shared: SharedResources | None = shared
        self._attached: bool = False
        if LAYOUT == "shared" and place == "rocksdb":
            place = "shared"
        if place == "shared":
            # Tasks of one test have one name, so each has a database of its own.
            self.shared = shared = SharedResources() if shared is None else copy(shared)
            shared.database = None
            attach(shared, tmp_path, self.specs, layout="shared")
            self._attached = True
        self.logs: dict[str, list[Record]] = {spec.name: [] for spec in specs if spec.logging}
        self.now: int = 0
        self.late: int = 0
        self.stores: TaskStores
        self.open()

    def open(self) -> None:
        self.stores = self.make()
        self.stores.open()

    def make(self) -> TaskStores:
        return TaskStores("0_3", self.specs, directory=self.directory, shared=self.shared, record_time=lambda: self.now, expired=self._count_late)

    def _count_late(self, count: int) -> None:
        self.late += count

    def __getitem__(self, name: str) -> Any:
        return self.stores.store(name)

    @property
    def store(self) -> Any:
        return self["s"]

    def log(self, token: Any) -> dict[str, list[Record]]:
        columns, written = self.records(token, 0), self.records(token, 1 << 20)
        assert columns == written
        return columns

    def records(self, token: Any, batch_bytes: int) -> dict[str, list[Record]]:
        """Return the output for a log that takes columns (0), or one that writes bytes, even where few changes are hardly worth it."""
        records: dict[str, list[Record]] = {}
        with patch.object(_transactional, "WORTHWHILE", 1):
            for name, batch in self.stores.changelog(token, batch_bytes=batch_bytes):
                # A log takes bytes of the very class, and none of a class of our own.
                assert set(map(type, (*batch.keys, *batch.values))) <= {bytes, NoneType}, name
                records.setdefault(name, []).extend(zip(batch.keys, batch.values, batch.timestamps, strict=True))
        return records

    def commit(self) -> dict[str, list[Record]]:
        token = self.stores.freeze()
        records = self.log(token)
        self.accept(records)
        self.stores.publish(token, self.ends())
        return records

    def accept(self, records: Mapping[str, list[Record]]) -> None:
        for name, added in records.items():
            self.logs[name].extend(added)

    def ends(self) -> dict[str, int]:
        return {name: len(log) for name, log in self.logs.items()}

    def flush(self) -> int:
        return sum(1 for _ in self.stores.flush_steps())

    def end_background_work(self) -> None:
        """Wait until RocksDB has all writes on disk: no flush is put off any more because another one is under way."""
        assert self.stores._engine is not None
        self.stores._engine.flush(wait=True)

    def restore(self, size: int = 3) -> int:
        restored = 0
        for name, log in self.logs.items():
            start = self.stores.next_offset(name) or 0
            while start < len(log):
                part = log[start : start + size]
                start += len(part)
                restored += len(part)
                keys, values, timestamps = map(list, zip(*part, strict=True))
                self.stores.restore(name, Batch(keys, values, timestamps), start)
        return restored

    def reopen(self, *, clean: bool = True) -> int:
        """Close, open again, and restore; return how many records that took."""
        self.stores.close(clean=clean)
        self.open()
        return self.restore()

    def close(self) -> None:
        self.stores.close(clean=False)
        if self._attached and self.shared is not None and self.shared.database is not None:
            database, self.shared.database = self.shared.database, None
            database.close()
