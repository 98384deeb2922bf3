"""Reads of queries compared with dicts: a scan sees the rows of its beginning, while others put, commit, fail, write to disk and restart."""

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

from ks_actors import SerializationError, StoreClosed
from ks_actors.serdes import DOUBLE, LONG, STRING, json
from ks_actors.state import DuplicatesReader, KeyValueReader, SharedResources, reader_of
from ks_actors.state.core import _reader, _transactional
from ks_actors.state.key_value import _sorted_keys
from tests.examples_of import examples
from tests.state.helpers import PLACES, Record, Task, key_value, window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.unmeasured

KEYS = st.integers(0, 9)
STARTS = st.integers(0, 12).map(lambda number: number * 25_000)
RETENTION = 130_000
STEP = 25_000
SERDES: dict[str, tuple[Any, Any, Callable[[int], Any], Callable[[int], Any]]] = {
    "text": (STRING, LONG, str, int),
    "bytes": (DOUBLE, json(), float, lambda number: [number]),
}
State = tuple[dict[Any, Any], dict[tuple[Any, int], Any], int]


class Open:
    """A scan that has begun, and its expected rows."""

    def __init__(self, rows: Any, expected: list[tuple[Any, Any]]) -> None:
        self.rows = rows
        self.expected = expected
        self.found: list[tuple[Any, Any]] = []


class ReadersAgainstDicts(RuleBasedStateMachine):
    """A table and a window store. `committed` and `open` are their expected content: table, windows, latest start."""

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
        self.task = Task(specs, self.path, place, shared)
        self.in_memory = place == "in_memory"
        self.number = 0
        self.committed: State = ({}, {}, -1)
        self.open: State = self.committed
        self.frozen: State = self.committed
        self.token: Any = None
        self.records: dict[str, list[Record]] = {}
        self.steps: Iterator[None] | None = None
        self.scans: list[Open] = []

    def teardown(self) -> None:
        if hasattr(self, "task"):
            self.finish_all()
            self.task.close()
            shutil.rmtree(self.path)

    def next_value(self) -> Any:
        self.number += 1
        return self.value(self.number)

    def order(self, key: Any) -> bytes:
        encoded: bytes = self.task["s"].key_bytes(key)
        return encoded

    # There are few rules, as Hypothesis leaves out some of them in most runs: what has to meet would never meet.

    @rule(changes=st.lists(st.tuples(KEYS, STARTS, st.booleans()), min_size=1, max_size=6), windows=st.booleans())
    def change(self, changes: list[tuple[int, int, bool]], windows: bool) -> None:
        if windows:
            self.put_window(changes)
        else:
            self.put([(key, delete) for key, _, delete in changes])

    @rule(
        what=st.sampled_from(("get", "scan", "windows", "fetch", "on", "on", "all")),
        keys=st.tuples(KEYS, KEYS),
        times=st.tuples(STARTS, STARTS),
        committed=st.booleans(),
        reverse=st.booleans(),
        take=st.integers(0, 3),
    )
    def read(self, what: str, keys: tuple[int, int], times: tuple[int, int], committed: bool, reverse: bool, take: int) -> None:
        match what:
            case "get":
                self.get(keys[0], times[0], committed)
            case "scan":
                self.scan(keys, committed, reverse, take)
            case "windows":
                self.scan_windows(None, times, committed, reverse, take)
            case "fetch":
                self.scan_windows(keys[0], times, committed, reverse, take)
            case "on" if self.scans:
                self.read_on(self.scans[keys[0] % len(self.scans)], take)
            case "all":
                self.finish_all()

    @rule(whole=st.booleans(), idle=st.booleans(), steps=st.integers(0, 8))
    def settle(self, whole: bool, idle: bool, steps: int) -> None:
        self.commit(whole)
        self.flush(idle, steps)

    # What changes.

    def put(self, changes: list[tuple[int, bool]]) -> None:
        table, windows, latest = self.open
        table = dict(table)
        for key, delete in changes:
            name, value = self.key(key), None if delete else self.next_value()
            self.task["s"].put(name, value)
            table[name] = value
            if delete:
                del table[name]
        self.open = (table, windows, latest)

    def put_window(self, changes: list[tuple[int, int, bool]]) -> None:
        table, windows, latest = self.open
        windows = dict(windows)
        for key, start, delete in changes:
            name, value = self.key(key), None if delete else self.next_value()
            self.task["w"].put(name, value, start)
            latest = max(latest, start)
            if start > latest - RETENTION:
                windows[name, start] = value
        self.open = (table, windows, latest)

    def commit(self, whole: bool) -> None:
        stores = self.task.stores
        if self.token is None:
            self.token, self.frozen = stores.freeze(), self.open
            self.records = self.task.log(self.token)
            if not whole:
                return
        self.task.accept(self.records)
        stores.publish(self.token, self.task.ends())
        self.token, self.committed = None, self.frozen

    def flush(self, idle: bool, steps: int) -> None:
        stores = self.task.stores
        if self.steps is None and stores.wants_flush(idle):
            self.steps = stores.flush_steps()
        for _ in range(steps):
            if self.steps is not None and next(self.steps, "end") == "end":
                self.steps = None

    @rule(how=st.sampled_from(("drop", "crash", "close")), size=st.integers(1, 5))
    def lose(self, how: str, size: int) -> None:
        if how == "drop":
            self.task.stores.drop()
        else:
            self.end_scans()
            self.steps = None
            self.task.stores.close(clean=how == "close")
            self.task.stores = self.task.make()
            self.task.stores.open()
            self.task.restore(size)
        self.token, self.open = None, self.committed

    def end_scans(self) -> None:
        """A reader gets an error when the stores are closed, unless all was read."""
        self.task.stores.end_reading("the task has left")
        for scan in self.scans:
            with pytest.raises(StoreClosed, match="the task has left"):
                next(scan.rows)
        self.scans = []

    # What is read.

    def seen(self, *, committed: bool) -> State:
        return self.committed if committed else self.open

    def get(self, key: int, start: int, committed: bool) -> None:
        name = self.key(key)
        table, windows, latest = self.seen(committed=committed)
        tables: Any = reader_of(self.task["s"])
        entry = tables.get(name, committed=committed)
        assert (None if entry is None else entry[0]) == table.get(name)
        reader: Any = reader_of(self.task["w"])
        entry = reader.get(name, start, committed=committed)
        assert (None if entry is None else entry[0]) == (windows.get((name, start)) if start > latest - RETENTION else None)

    def scan(self, keys: tuple[int, int], committed: bool, reverse: bool, take: int) -> None:
        reader: Any = reader_of(self.task["s"])
        low, high = (None if key < 5 else self.key(key) for key in keys)
        table = self.seen(committed=committed)[0]
        names = sorted((name for name in table if (low is None or name >= low) and (high is None or name <= high)), key=self.order, reverse=reverse)
        for _ in reader.prepare():
            pass
        rows = reader.scan(*reader.bounds(low, high), committed=committed, reverse=reverse)
        self.add(rows, [(name, table[name]) for name in names], take)

    def scan_windows(self, what: int | None, times: tuple[int, int], committed: bool, reverse: bool, take: int) -> None:
        reader: Any = reader_of(self.task["w"])
        _, windows, latest = self.seen(committed=committed)
        first, last = times
        handles = [
            (name, start)
            for (name, start), value in windows.items()
            if value is not None and first <= start <= last and start > latest - RETENTION and (what is None or name == self.key(what))
        ]
        segment = self.task["w"].segment_ms
        handles.sort(
            key=lambda one: (one[1], self.order(one[0])) if self.in_memory else (one[1] // segment, self.order(one[0]), one[1]), reverse=reverse
        )
        if what is None:
            rows = reader.fetch_all(first, last, committed=committed, reverse=reverse)
        else:
            rows = reader.fetch(self.key(what), first, last, committed=committed, reverse=reverse)
        self.add(rows, [(handle, windows[handle]) for handle in handles], take)

    def add(self, rows: Any, expected: list[tuple[Any, Any]], take: int) -> None:
        scan = Open(rows, expected)
        self.scans.append(scan)
        self.read_on(scan, take)

    def read_on(self, scan: Open, count: int) -> None:
        for _ in range(count):
            if next(scan.rows.steps, "end") != "end":
                continue
            row = next(scan.rows, None)
            if row is None:
                assert scan.found == scan.expected
                self.scans.remove(scan)
                return
            scan.found.append((row[1], row[2][0]))
            assert scan.found == scan.expected[: len(scan.found)]

    def finish_all(self) -> None:
        while self.scans:
            self.read_on(self.scans[0], 10)


@pytest.mark.parametrize("seed", range(60))
def test_scans_see_the_rows_of_their_beginning(seed: int) -> None:
    """With anything between two rows, a scan finds the rows of its beginning: nothing more, nothing less, in order."""
    random = Random(seed)
    model = ReadersAgainstDicts()
    model.begin(random.choice(PLACES), random.choice(sorted(SERDES)), random.choice((3_000, 1 << 20)), random.choice((0, STEP)))

    def times() -> tuple[int, int]:
        return random.choice(((0, 300_000), (random.randrange(7) * 25_000, random.randrange(4, 13) * 25_000)))

    try:
        late = 0
        for _ in range(300):
            late = min(late + random.randrange(2), 12)
            act = random.random()
            if act < 0.3:
                starts = [max(0, late - random.randrange(5)) for _ in range(6)]
                model.change([(random.randrange(10), start * 25_000, random.random() < 0.3) for start in starts], random.random() < 0.5)
            elif act < 0.5:
                model.settle(random.random() < 0.7, random.random() < 0.5, random.randrange(9))
            elif act < 0.53:
                late = 0
                model.lose(random.choice(("drop", "drop", "crash", "close")), random.randrange(1, 5))
            else:
                what = random.choice(("get", "scan", "windows", "fetch", "on", "on", "on"))
                keys = random.randrange(10), random.randrange(10)
                model.read(what, keys, times(), random.random() < 0.6, random.random() < 0.3, random.randrange(3))
    finally:
        model.teardown()


TestReaders = ReadersAgainstDicts.TestCase
TestReaders.settings = settings(
    max_examples=examples(60), stateful_step_count=50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks and steps are so small that there are several of each."""
    monkeypatch.setattr(_sorted_keys, "CHUNK", 2)
    monkeypatch.setattr(_reader, "MANY", 1)
    monkeypatch.setattr(_reader, "STEP", 2)
    monkeypatch.setattr(_transactional, "ROWS", 2)
    monkeypatch.setattr(_transactional, "SLICE", 3)


def test_keys_lie_in_order_however_they_come() -> None:
    """An order of keys is the sorted one, for any way and any order of puts."""
    random = Random(5)
    for _ in range(50):
        order = _sorted_keys.Order(str.encode, bytes.decode, (str(random.randrange(40)) for _ in range(random.randrange(30))))
        known = set(order.pending)
        empty = _sorted_keys.Order(str.encode, bytes.decode)
        empty.place_all()
        assert (list(empty.walk(b"", b"", reverse=False)), empty.within(b"", b""), len(empty)) == ([], [], 0)
        for _ in range(20):
            fresh = [random.choice(("", str(random.randrange(99)))) for _ in range(random.randrange(6))]
            restored = [str(random.randrange(99)).encode() for _ in range(random.randrange(3))]
            order.pending += fresh
            order.pending_bytes += restored
            known |= {*fresh, *map(bytes.decode, restored)}
            if random.random() < 0.5:
                order.place_all()
                assert order.missing == len(order.pending_bytes)
            else:
                order.place(order.missing)
                low, high = random.choice(("", str(random.randrange(99)))), random.choice(("", str(random.randrange(99))))
                expected = sorted(key for key in known if key >= low and (not high or key < high))
                assert [key for _, key in order.within(low.encode(), high.encode())] == expected
                for reverse in (False, True):
                    walked = list(order.walk(low.encode(), high.encode(), reverse=reverse))
                    assert [key for _, key in walked] == (expected[::-1] if reverse else expected)
                assert not expected or order.about(low.encode(), high.encode()) >= len(expected)
                assert [key for _, key in order.walk(b"", b"", reverse=True)] == sorted(known, reverse=True)
                assert len(order) == len(known)


@pytest.mark.parametrize("place", PLACES)
def test_an_order_that_nobody_needs_is_forgotten(place: str, tmp_path: Path) -> None:
    """The order of keys that a scan has made is let go of when many keys come and go and nobody scans; the next scan makes it anew."""
    task = Task([key_value()], tmp_path, place)
    store, reader = task.store, KeyValueReader(task.store)
    store.put("a", 1)
    assert [row[1] for row in reader.scan(b"", b"", committed=False, reverse=False)] == ["a"]
    for start in range(0, 20_000, 100):
        for number in range(start, start + 100):
            store.put(f"k{number:05}", number)
        task.commit()
        for number in range(start, start + 100):
            store.delete(f"k{number:05}")
        task.commit()
        task.flush()
    assert store._order is None or store._order.missing < 5_000
    store.put("b", 2)
    assert [row[1] for row in reader.scan(b"", b"", committed=False, reverse=False)] == ["a", "b"]
    assert [row[1] for row in reader.scan(b"", b"", committed=True, reverse=False)] == ["a"]
    task.close()


@pytest.mark.parametrize("place", PLACES)
def test_duplicates_are_read_one_by_one(place: str, tmp_path: Path) -> None:
    """A window store that keeps duplicates is read in the order in which they were put; those that are not committed only when they are asked for."""
    task = Task([window(retain_duplicates=True)], tmp_path, place)
    store = task.store
    for number in range(3):
        store.put("k", f"old{number}", 50)
    store.put("l", "other", 60)
    task.commit()
    task.flush()
    task.reopen()
    store = task.store
    reader: Any = reader_of(store)
    assert isinstance(reader, DuplicatesReader)
    store.put("k", "new", 50)

    def rows(found: Any) -> list[tuple[Any, Any]]:
        for _ in found.steps:
            pass
        return [(key, entry[0]) for _, key, entry in found]

    for committed in (True, False):
        of_k = [(("k", 50), f"old{number}") for number in range(3)] + ([] if committed else [(("k", 50), "new")])
        for reverse in (False, True):
            options = {"committed": committed, "reverse": reverse}
            assert rows(reader.fetch("k", 0, 100, **options)) == (of_k[::-1] if reverse else of_k)
            everything = [*of_k, (("l", 60), "other")]
            assert rows(reader.fetch_all(0, 100, **options)) == (everything[::-1] if reverse else everything)
        assert (reader.get("k", 50, committed=committed) is None) == committed
    task.close()


@pytest.mark.parametrize("place", PLACES)
def test_duplicates_that_can_be_changed_in_place_are_copies(place: str, tmp_path: Path) -> None:
    """A reader gets a copy of each mutable value; a put raises for a value that cannot be written; a put of None adds nothing."""
    task = Task([window(value=json(), retain_duplicates=True)], tmp_path, place)
    store, reader = task.store, DuplicatesReader(task.store)
    store.put("k", [1], 50)
    store.put("k", None, 50)
    for _ in range(2):
        for rows in (reader.fetch("k", 0, 100, committed=False, reverse=False), reader.fetch_all(0, 100, committed=False, reverse=False)):
            for _ in rows.steps:
                pass
            ((_, key, entry),) = rows
            assert (key, entry[0]) == (("k", 50), [1])
            entry[0].append("mine")
    task.commit()
    with pytest.raises(SerializationError, match="the serde cannot write"):
        store.put("k", {object()}, 51)
    ((_, _, entry),) = reader.fetch("k", 0, 100, committed=False, reverse=False)
    assert entry[0] == [1]
    task.stores.drop()
    task.close()
