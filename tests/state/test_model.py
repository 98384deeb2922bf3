"""Stores against dicts: any order of puts, reads, scans, commits, failures, writes to disk, crashes and restores."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from ks_actors.serdes import DOUBLE, LONG, STRING, json
from ks_actors.state import SharedResources, _task_stores
from ks_actors.state.core import _transactional
from ks_actors.state.join_window import _rows_by_time
from ks_actors.state.key_value import _table
from ks_actors.state.timed import _timed_store
from ks_actors.state.window import _by_start
from tests.state.helpers import PLACES, Record, Task, key_value, window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.unmeasured

KEYS = st.integers(0, 7)
STARTS = st.integers(0, 12).map(lambda number: number * 25_000)
RETENTION = 130_000
STEP = 25_000
SERDES: dict[str, tuple[Any, Any, Callable[[int], Any], Callable[[int], Any]]] = {
    "text": (STRING, LONG, str, int),
    "packed": (STRING, STRING, str, str),
    "bytes": (DOUBLE, json(), float, lambda number: [number]),
}
Windows = dict[tuple[Any, int], Any]
State = tuple[dict[Any, Any], Windows, tuple[tuple[Any, int, Any], ...], int, int]


def order(key: Any) -> bytes:
    return DOUBLE.serializer("")(key) if isinstance(key, float) else key.encode()


class StoresAgainstDicts(RuleBasedStateMachine):
    """One table, one window store, one with duplicates. `committed`, `frozen` and `open` are their expected content: table, windows, rows, times."""

    @initialize(
        place=st.sampled_from(PLACES),
        kinds=st.sampled_from(sorted(SERDES)),
        resident=st.sampled_from((3_000, 1 << 20)),
        advance=st.sampled_from((0, STEP)),
    )
    def begin(self, place: str, kinds: str, resident: int, advance: int) -> None:
        key, value, self.key, self.value = SERDES[kinds]
        self.path = Path(tempfile.mkdtemp())
        shared = SharedResources(resident_bytes=resident, tail_records=20)
        specs = [key_value("s", key=key, value=value), window("w", key=key, value=value, retention_ms=RETENTION, advance_ms=advance)]
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

    # There are few rules, as Hypothesis leaves out some of them in most runs: what has to meet would never meet.

    @rule(store=st.sampled_from("swd"), changes=st.lists(st.tuples(KEYS, STARTS, st.booleans()), min_size=1, max_size=6))
    def change(self, store: str, changes: list[tuple[int, int, bool]]) -> None:
        {"s": self.put, "w": self.put_window, "d": self.put_duplicates}[store](changes)

    @rule(what=st.sampled_from(("get", "scan", "fetch", "fetch all", "everything")), keys=st.tuples(KEYS, KEYS), starts=st.tuples(STARTS, STARTS))
    def read(self, what: str, keys: tuple[int, int], starts: tuple[int, int]) -> None:
        match what:
            case "get":
                self.get(keys[0])
            case "scan":
                low, high = (None if key == 0 else key for key in keys)
                self.scan(low, high, reverse=starts[0] > starts[1])
            case "fetch":
                self.fetch(keys[0], *starts)
            case "fetch all":
                self.fetch_all(*starts)
            case _:
                self.look()

    @rule(stage=st.sampled_from(("next", "next", "whole")))
    def commit(self, stage: str) -> None:
        if self.token is None:
            self.freeze()
        elif self.changelog is not None:
            self.log_one_store()
        else:
            self.publish()
        if stage == "whole" and self.token is not None:
            self.publish()

    @rule(idle=st.booleans(), steps=st.integers(0, 8))
    def flush(self, idle: bool, steps: int) -> None:
        if self.steps is None:
            self.begin_flush(idle)
        for _ in range(steps):
            if self.steps is not None:
                self.flush_step()
        if steps == 0:
            self.steps = None

    @rule(how=st.sampled_from(("drop", "crash", "close")), size=st.integers(1, 5), look=st.booleans())
    def lose(self, how: str, size: int, look: bool) -> None:
        if how == "drop":
            self.drop()
        else:
            self.restart(clean=how == "close", size=size)
        if look:
            self.look()

    # What is done by record.

    def put(self, changes: list[tuple[int, int, bool]]) -> None:
        table, windows, rows, observed, latest = self.open
        table = dict(table)
        for key, _, delete in changes:
            name, value = self.key(key), None if delete else self.next_value()
            self.task["s"].put(name, value)
            table[name] = value
            if delete:
                del table[name]
        self.open = (table, windows, rows, observed, latest)
        assert self.task.stores.uncommitted_bytes > 0

    def get(self, key: int) -> None:
        name = self.key(key)
        value = self.open[0].get(name)
        assert self.task["s"].get(name) == value
        if isinstance(value, list) and self.task["s"].get(name) is not self.task["s"].get(name):
            self.task["s"].get(name).append("a copy, of no consequence")

    def scan(self, low: int | None, high: int | None, *, reverse: bool) -> None:
        first, last = None if low is None else self.key(low), None if high is None else self.key(high)
        expected = sorted(
            ((key, value) for key, value in self.open[0].items() if (low is None or key >= first) and (high is None or key <= last)),
            key=lambda pair: order(pair[0]),
            reverse=reverse,
        )
        store = self.task["s"]
        assert list(store.reverse_range(first, last) if reverse else store.range(first, last)) == expected

    def put_window(self, changes: list[tuple[int, int, bool]]) -> None:
        table, windows, rows, observed, latest = self.open
        windows = dict(windows)
        for key, start, delete in changes:
            name, value = self.key(key), None if delete else self.next_value()
            self.task["w"].put(name, value, start)
            observed = max(observed, start)
            if start > observed - RETENTION:
                windows[name, start] = value
        self.open = (table, windows, rows, observed, latest)

    def put_duplicates(self, changes: list[tuple[int, int, bool]]) -> None:
        table, windows, rows, observed, latest = self.open
        for key, start, delete in changes:
            name, value = self.key(key), None if delete else self.next_value()
            self.task["d"].put(name, value, start)
            if not delete or self.task.specs[0].type == "in_memory":
                latest = max(latest, start)
            if not delete and start > latest - RETENTION:
                rows = (*rows, (name, start, value))
        self.open = (table, windows, rows, observed, latest)

    def fetch(self, key: int, first: int, last: int) -> None:
        name = self.key(key)
        _, windows, rows, observed, latest = self.open
        visible = {handle: value for handle, value in windows.items() if value is not None and handle[1] > observed - RETENTION}
        assert self.task["w"].fetch(name, first) == visible.get((name, first))
        found = [(start, value) for (other, start), value in visible.items() if other == name and first <= start <= last]
        assert list(self.task["w"].fetch(name, first, last)) == sorted(found, key=lambda pair: pair[0])
        found = [(start, value) for other, start, value in rows if other == name and first <= start <= last and start > latest - RETENTION]
        assert list(self.task["d"].fetch(name, first, last)) == sorted(found, key=lambda pair: pair[0])

    def fetch_all(self, first: int, last: int) -> None:
        _, windows, rows, observed, latest = self.open
        found = [(name, start, value) for (name, start), value in windows.items() if value is not None and start > observed - RETENTION]
        for store, visible in (("w", found), ("d", [row for row in rows if row[1] > latest - RETENTION])):
            there = sorted((row for row in visible if first <= row[1] <= last), key=lambda row: (row[1], order(row[0])))
            assert [(key, start, entry[0]) for key, start, entry in self.task[store].fetch_all_entries(first, last)] == there
            assert len(list(self.task[store].fetch_all(first, last))) == len(there)

    def look(self) -> None:
        """At all there is."""
        self.scan(None, None, reverse=False)
        self.fetch_all(0, 1 << 40)
        for key in range(8):
            self.fetch(key, 0, 1 << 40)

    # What is done by commit.

    def freeze(self) -> None:
        self.token = self.task.stores.freeze()
        self.frozen, self.records = self.open, {}
        self.changelog = self.task.stores.changelog(self.token)

    def log_one_store(self) -> None:
        assert self.changelog is not None
        found = next(self.changelog, None)
        if found is None:
            self.changelog = None
        else:
            name, batch = found
            self.records.setdefault(name, []).extend(zip(batch.keys, batch.values, batch.timestamps, strict=True))

    def publish(self) -> None:
        while self.changelog is not None:
            self.log_one_store()
        self.task.accept(self.records)
        self.task.stores.publish(self.token, self.task.ends())
        self.committed, self.frozen, self.token = self.frozen, None, None

    def drop(self) -> None:
        self.task.stores.drop()
        self.open, self.frozen, self.token, self.changelog = self.committed, None, None, None

    # What is done in between.

    def begin_flush(self, idle: bool) -> None:
        if self.task.stores.wants_flush(idle):
            self.steps = self.task.stores.flush_steps()

    def flush_step(self) -> None:
        assert self.steps is not None
        if next(self.steps, self) is self:
            self.steps = None

    def restart(self, *, clean: bool, size: int) -> None:
        self.steps = self.changelog = self.token = self.frozen = None
        self.task.stores.close(clean=clean)
        self.task.stores = self.task.make()
        self.task.stores.open()
        restored = self.task.restore(size)
        assert not (clean and self.task.directory and self.task.specs[0].type == "rocksdb" and restored)
        self.open = self.committed


TestStoresAgainstDicts = StoresAgainstDicts.TestCase
TestStoresAgainstDicts.settings = settings(max_examples=40, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck))


def drive(seed: int) -> None:
    """Run a seed: unlike Hypothesis, with everything in every run."""
    random = Random(seed)
    machine = StoresAgainstDicts()
    machine.begin(
        place=random.choice(PLACES), kinds=random.choice(sorted(SERDES)), resident=random.choice((3_000, 1 << 20)), advance=random.choice((0, STEP))
    )
    keys = random.choice((3, 8))

    def start() -> int:
        return random.randrange(13) * STEP

    try:
        for _ in range(120):
            match random.choices(("change", "read", "commit", "flush", "lose"), (35, 20, 20, 17, 8))[0]:
                case "change":
                    changes = [(random.randrange(keys), start(), random.random() < 0.3) for _ in range(random.randint(1, 6))]
                    machine.change(random.choice("swd"), changes)
                case "read":
                    what = random.choice(("get", "scan", "fetch", "fetch", "fetch all", "everything"))
                    machine.read(what, (random.randrange(keys), random.randrange(keys)), (start(), start()))
                case "commit":
                    machine.commit(random.choice(("next", "next", "whole")))
                case "flush":
                    machine.flush(random.random() < 0.5, random.randrange(30))
                case _:
                    machine.lose(random.choice(("drop", "drop", "crash", "close")), random.randint(1, 5), random.random() < 0.5)
    finally:
        machine.teardown()


@pytest.fixture
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_by_start, _rows_by_time, _table, _task_stores, _timed_store, _transactional):
        for name, value in {"SLICE": 2, "ROWS": 2, "GROUP": 4, "VISITS": 2}.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)


@pytest.mark.usefixtures("_small_steps")
@pytest.mark.parametrize("seed", range(60))
def test_stores_are_like_dicts(seed: int) -> None:
    """For any actions in any order, with steps so small that everything falls between two of them."""
    drive(seed)
