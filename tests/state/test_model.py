"""Stores against dicts: any order of puts, reads, scans, commits, failures, writes to disk, crashes and restores."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ks_actors.serdes import DOUBLE, LONG, STRING, json
from ks_actors.state import SharedResources
from tests.state.helpers import PLACES, Record, Task, key_value, window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEYS = st.integers(0, 7)
STARTS = st.integers(0, 12).map(lambda number: number * 25_000)
RETENTION = 130_000
SERDES: dict[str, tuple[Any, Any, Callable[[int], Any], Callable[[int], Any]]] = {
    "text": (STRING, LONG, str, int),
    "bytes": (DOUBLE, json(), float, lambda number: [number]),
}
Windows = dict[tuple[Any, int], Any]
State = tuple[dict[Any, Any], Windows, tuple[tuple[Any, int, Any], ...], int, int]


def order(key: Any) -> bytes:
    return DOUBLE.serializer("")(key) if isinstance(key, float) else key.encode()


class StoresAgainstDicts(RuleBasedStateMachine):
    """One table, one window store, one with duplicates. `committed`, `frozen` and `open` are what they should hold: table, windows, rows, times."""

    @initialize(
        place=st.sampled_from(PLACES), kinds=st.sampled_from(sorted(SERDES)), timestamped=st.booleans(), resident=st.sampled_from((3_000, 1 << 20))
    )
    def begin(self, place: str, kinds: str, timestamped: bool, resident: int) -> None:
        key, value, self.key, self.value = SERDES[kinds]
        self.path = Path(tempfile.mkdtemp())
        shared = SharedResources(resident_bytes=resident, tail_records=20)
        specs = [key_value("s", key=key, value=value), window("w", key=key, value=value, retention_ms=RETENTION)]
        specs.append(window("d", key=key, value=value, retention_ms=RETENTION, retain_duplicates=True))
        self.task = Task(specs, self.path, place, shared)
        self.number = 0
        self.committed: State = ({}, {}, (), -1, -1)
        self.open: State = self.committed
        self.frozen: Any = None
        self.token: Any = None
        self.records: dict[str, list[Record]] = {}
        self.changelog: Iterator[Any] | None = None
        self.steps: Iterator[None] | None = None

    def teardown(self) -> None:
        if hasattr(self, "task"):
            self.task.close()
            shutil.rmtree(self.path)

    def next_value(self) -> Any:
        self.number += 1
        return self.value(self.number)

    # What is done by record.

    @rule(key=KEYS, delete=st.booleans())
    def put(self, key: int, delete: bool) -> None:
        table, windows, rows, observed, latest = self.open
        name, value = self.key(key), None if delete else self.next_value()
        self.task["s"].put(name, value)
        table = {**table, name: value}
        if delete:
            del table[name]
        self.open = (table, windows, rows, observed, latest)
        assert self.task.stores.uncommitted_bytes > 0

    @rule(key=KEYS)
    def get(self, key: int) -> None:
        name = self.key(key)
        value = self.open[0].get(name)
        assert self.task["s"].get(name) == value
        if isinstance(value, list) and self.task["s"].get(name) is not self.task["s"].get(name):
            self.task["s"].get(name).append("a copy, of no consequence")

    @rule(low=st.none() | KEYS, high=st.none() | KEYS, reverse=st.booleans())
    def scan(self, low: int | None, high: int | None, reverse: bool) -> None:
        first, last = None if low is None else self.key(low), None if high is None else self.key(high)
        expected = sorted(
            ((key, value) for key, value in self.open[0].items() if (low is None or key >= first) and (high is None or key <= last)),
            key=lambda pair: order(pair[0]),
            reverse=reverse,
        )
        store = self.task["s"]
        assert list(store.reverse_range(first, last) if reverse else store.range(first, last)) == expected

    @rule(key=KEYS, start=STARTS, delete=st.booleans(), duplicates=st.booleans())
    def put_window(self, key: int, start: int, delete: bool, duplicates: bool) -> None:
        table, windows, rows, observed, latest = self.open
        name, value = self.key(key), None if delete else self.next_value()
        self.task["d" if duplicates else "w"].put(name, value, start)
        if duplicates:
            if not delete or self.task.specs[0].type == "in_memory":
                latest = max(latest, start)
            if not delete and start > latest - RETENTION:
                rows = (*rows, (name, start, value))
        else:
            observed = max(observed, start)
            if start > observed - RETENTION:
                windows = {**windows, (name, start): value}
        self.open = (table, windows, rows, observed, latest)

    @rule(key=KEYS, first=STARTS, last=STARTS)
    def fetch(self, key: int, first: int, last: int) -> None:
        name = self.key(key)
        _, windows, rows, observed, latest = self.open
        visible = {handle: value for handle, value in windows.items() if value is not None and handle[1] > observed - RETENTION}
        assert self.task["w"].fetch(name, first) == visible.get((name, first))
        found = [(start, value) for (other, start), value in visible.items() if other == name and first <= start <= last]
        assert list(self.task["w"].fetch(name, first, last)) == sorted(found, key=lambda pair: pair[0])
        found = [(start, value) for other, start, value in rows if other == name and first <= start <= last and start > latest - RETENTION]
        assert list(self.task["d"].fetch(name, first, last)) == sorted(found, key=lambda pair: pair[0])

    @rule(first=STARTS, last=STARTS)
    def fetch_all(self, first: int, last: int) -> None:
        _, windows, rows, observed, latest = self.open
        found = [(name, start, value) for (name, start), value in windows.items() if value is not None and start > observed - RETENTION]
        for store, visible in (("w", found), ("d", [row for row in rows if row[1] > latest - RETENTION])):
            there = sorted((row for row in visible if first <= row[1] <= last), key=lambda row: (row[1], order(row[0])))
            assert [(key, start, entry[0]) for key, start, entry in self.task[store].fetch_all_entries(first, last)] == there
            assert len(list(self.task[store].fetch_all(first, last))) == len(there)

    # What is done by commit.

    @precondition(lambda self: self.token is None)
    @rule()
    def freeze(self) -> None:
        self.token = self.task.stores.freeze()
        self.frozen, self.records = self.open, {}
        self.changelog = self.task.stores.changelog(self.token)

    @precondition(lambda self: self.changelog is not None)
    @rule()
    def log_one_store(self) -> None:
        assert self.changelog is not None
        found = next(self.changelog, None)
        if found is None:
            self.changelog = None
        else:
            name, batch = found
            self.records.setdefault(name, []).extend(zip(batch.keys, batch.values, batch.timestamps, strict=True))

    @precondition(lambda self: self.token is not None)
    @rule()
    def keep(self) -> None:
        while self.changelog is not None:
            self.log_one_store()
        self.task.accept(self.records)
        self.task.stores.keep(self.token, self.task.ends())
        self.committed, self.frozen, self.token = self.frozen, None, None

    @precondition(lambda self: self.token is None)
    @rule()
    def commit(self) -> None:
        self.freeze()
        self.keep()

    @rule()
    def drop(self) -> None:
        self.task.stores.drop()
        self.open, self.frozen, self.token, self.changelog = self.committed, None, None, None

    # What is done in between.

    @rule(idle=st.booleans())
    def begin_flush(self, idle: bool) -> None:
        if self.task.stores.wants_flush(idle):
            self.steps = self.task.stores.flush_steps()

    @precondition(lambda self: self.steps is not None)
    @rule()
    def flush_step(self) -> None:
        assert self.steps is not None
        if next(self.steps, self) is self:
            self.steps = None

    @rule()
    def give_up_flush(self) -> None:
        self.steps = None

    @rule(clean=st.booleans(), size=st.integers(1, 5))
    def restart(self, clean: bool, size: int) -> None:
        self.steps = self.changelog = self.token = self.frozen = None
        self.task.stores.close(clean=clean)
        self.task.stores = self.task.make()
        self.task.stores.open()
        restored = self.task.restore(size)
        assert not (clean and self.task.directory and self.task.specs[0].type == "rocksdb" and restored)
        self.open = self.committed


TestStoresAgainstDicts = StoresAgainstDicts.TestCase
TestStoresAgainstDicts.settings = settings(max_examples=150, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck))
