"""The behavior of a window store, for any engine; with the expectations of Kafka Streams' own tests."""

from __future__ import annotations

from typing import Any

import pytest

from ks_actors._errors import SerializationError, StoreClosed
from ks_actors.serdes import DOUBLE, INTEGER, LONG, STRING, json
from ks_actors.state import SharedResources, ValueAndTimestamp
from ks_actors.state.window import _by_start
from tests.ks_actors.state import helpers
from tests.ks_actors.state.conftest import MakeTask
from tests.ks_actors.state.helpers import Task, window

RETENTION = 30 * 60_000
SEGMENT = RETENTION // 2
SIZE = 3
START = SEGMENT - 4
NAMES = {0: "zero", 1: "one", 2: "two", 3: "three", 4: "four", 5: "five"}
STAGES = ("open", "frozen", "kept", "written", "reopened", "restored")


@pytest.fixture(params=["by key", "by start"], autouse=True)
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The layout of memory: by key, for any windows, or by start, for windows that all keys have in common."""
    if request.param == "by start":
        monkeypatch.setattr(helpers, "ADVANCE_MS", 1)
        monkeypatch.setattr(_by_start, "MANY", RETENTION * RETENTION)
    return str(request.param)


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def bring(task: Task, stage: str) -> None:
    if stage == "frozen":
        task.stores.freeze()
    elif stage != "open":
        task.commit()
        if stage == "written":
            task.flush()
        elif stage != "kept":
            task.reopen(clean=stage == "reopened")


def java(make: MakeTask, **options: Any) -> Task:
    """A store as the Java tests have it."""
    return make(window(key=INTEGER, value=STRING, retention_ms=RETENTION, window_size_ms=SIZE, **options))


def first_batch(store: Any) -> None:
    for key, start in ((0, 0), (1, 1), (2, 2), (3, 2), (4, 4), (5, 5)):
        store.put(key, NAMES[key], START + start)


def second_batch(store: Any) -> None:
    for number in range(1, 7):
        store.put(2, f"two+{number}", START + 2 + number)


def test_fetch_by_key_and_time(make: MakeTask, stage: str) -> None:
    """Both bounds belong to a span; at one point there is one value or None."""
    task = java(make)
    first_batch(task.store)
    second_batch(task.store)
    bring(task, stage)
    store = task.store
    assert [value for _, value in store.fetch(0, START - SIZE, START + SIZE)] == ["zero"]
    assert [store.fetch(2, START + 2 + number) for number in range(1, 7)] == [f"two+{number}" for number in range(1, 7)]
    assert (store.fetch(2, START + 9), store.fetch(9, START)) == (None, None)
    stored = [(START + 2, "two"), *((START + 2 + number, f"two+{number}") for number in range(1, 7))]
    for time in range(START - 3, START + 14):
        expected = [(start, value) for start, value in stored if time - SIZE <= start <= time + SIZE]
        assert list(store.fetch(2, time - SIZE, time + SIZE)) == expected
        assert list(store.backward_fetch(2, time - SIZE, time + SIZE)) == expected[::-1]
    assert list(store.fetch(2, START + 5, START + 4)) == []


def test_fetch_of_all_keys(make: MakeTask, stage: str) -> None:
    """all, fetch_all, ranges of keys, and all of them backwards; where the order of segments is that of time, so is the order of records."""
    task = java(make)
    first_batch(task.store)
    bring(task, stage)
    store = task.store
    stored = [((0, START), "zero"), ((1, START + 1), "one"), ((2, START + 2), "two"), ((3, START + 2), "three"), ((4, START + 4), "four")]
    stored.append(((5, START + 5), "five"))
    assert list(store.all()) == stored
    assert list(store.backward_all()) == stored[::-1]
    for first, last in ((START + 1, START + 4), (START, START + 3), (START + 1, START + 5), (START + 6, START + 9), (5, 4)):
        expected = [row for row in stored if first <= row[0][1] <= last]
        assert list(store.fetch_all(first, last)) == expected
        assert list(store.backward_fetch_all(first, last)) == expected[::-1]
        assert store.fetch_all_entries(first, last) == [(key, start, (value, 0)) for (key, start), value in expected]
    assert list(store.fetch_range(1, 3, START, START + 2)) == stored[1:4]
    assert list(store.fetch_range(None, 1, START, START + 9)) == stored[:2]
    assert list(store.fetch_range(4, None, START, START + 9)) == stored[4:]
    assert list(store.fetch_range(4, 2, START, START + 9)) == []


def test_the_order_of_all_keys(make: MakeTask, place: str, stage: str) -> None:
    """In memory by start, then key; where there are segments, by segment, then key, then start. For operators always by start."""
    task = make(window(retention_ms=200_000))
    puts = [("b", 5), ("a", 7), ("a", 5), ("b", 120_000), ("a", 120_001)]
    for key, start in puts:
        task.store.put(key, key, start)
    bring(task, stage)
    by_time = sorted(puts, key=lambda put: (put[1], put[0]))
    segmented = [("a", 5), ("a", 7), ("b", 5), ("a", 120_001), ("b", 120_000)]
    assert [row[0] for row in task.store.all()] == (by_time if place == "in_memory" else segmented)
    assert [row[:2] for row in task.store.fetch_all_entries(0, 200_000)] == by_time


def test_deletes_and_updates(make: MakeTask, stage: str) -> None:
    """None deletes one window of a key, the last put of one counts."""
    task = java(make)
    for value in ("zero", "again", None, "last"):
        task.store.put(0, value, START)
    task.store.put(1, "one", START + 1)
    task.store.put(1, None, START + 1)
    bring(task, stage)
    assert list(task.store.all()) == [((0, START), "last")]
    assert list(task.store.fetch(1, START, START + 2)) == []
    assert task.store.fetch(1, START + 1) is None
    with pytest.raises(TypeError, match="store s"):
        task.store.put(None, "x", START)
    with pytest.raises(TypeError, match="store s"):
        task.store.fetch(None, START)


def test_duplicates_are_kept_in_order(make: MakeTask, stage: str) -> None:
    """With a sequence number each; None adds nothing, and a single window is that of the last put."""
    task = java(make, retain_duplicates=True)
    for start, values in ((0, ("one", "one-2")), (SIZE * 10, ("two", None, "two-2")), (SIZE * 20, ("three", "three-2"))):
        for value in values:
            task.store.put(1, value, start)
    bring(task, stage)
    found = [(0, "one"), (0, "one-2"), (SIZE * 10, "two"), (SIZE * 10, "two-2")]
    assert list(task.store.fetch(1, 0, SIZE * 10)) == found
    assert list(task.store.fetch_all(0, SIZE * 10)) == [((1, start), value) for start, value in found]
    assert task.store.fetch(1, SIZE * 20) == "three-2"
    assert task.store.fetch(1, 0) is None
    assert len(list(task.store.all())) == 6
    if stage != "frozen":
        task.store.put(1, "one-3", 0)
        assert [value for _, value in task.store.fetch(1, 0, 0)] == ["one", "one-2", "one-3"]


def test_the_changelog_of_windows(make: MakeTask, place: str) -> None:
    """Keys are followed by start and sequence number; values have no timestamp, deletions are tombstones."""
    task = make(window(), window("d", retain_duplicates=True), window("t", timestamped=True, value=LONG))
    task.now = 7
    task.store.put("a", "old", 5)
    task.store.put("a", "x", 5)
    task.store.put("b", "x", 6)
    task.store.put("b", None, 6)
    task["d"].put("a", "x", 5)
    task["d"].put("a", None, 5)
    task["d"].put("a", "y", 5)
    task["t"].put("a", ValueAndTimestamp(1, 99), 5)
    start, records = (5).to_bytes(8, "big"), task.commit()
    assert records["s"] == [(b"a" + start + bytes(4), b"x", 7), (b"b" + (6).to_bytes(8, "big") + bytes(4), None, 7)]
    assert records["t"] == [(b"a" + start + bytes(4), (1).to_bytes(8, "big"), 99)]
    ignored = [(b"a" + start + b"\0\0\0\2", None, 7)] if place == "in_memory" else []
    assert records["d"] == [(b"a" + start + b"\0\0\0\1", b"x", 7), *ignored, (b"a" + start + bytes((0, 0, 0, 2 + len(ignored))), b"y", 7)]


def test_rows_older_than_the_retention_are_not_seen(make: MakeTask, stage: str) -> None:
    """Nothing that starts at or before the latest start minus the retention, in none of the ways to ask."""
    task = make(window(retention_ms=100))
    for start in (0, 25, 50, 75):
        task.store.put("k", str(start), start)
    task.store.put("k", "100", 100)
    bring(task, stage)
    store = task.store
    left = [(25, "25"), (50, "50"), (75, "75"), (100, "100")]
    assert list(store.fetch("k", -5, 1000)) == left
    assert [(start, value) for (_, start), value in store.all()] == left
    assert [(start, value) for (_, start), value in store.fetch_all(0, 50)] == left[:2]
    assert (store.fetch("k", 0), store.fetch("k", 25)) == (None, "25")
    assert list(store.fetch("k", -9, 0)) == list(store.fetch_all(-9, 0)) == []
    if stage != "frozen":
        with store.fetch("k", 0, 200) as rows:
            store.put("k", "125", 125)
            assert list(rows) == left
        assert list(store.fetch("k", 0, 200)) == [*left[1:], (125, "125")]


def test_late_puts(make: MakeTask, place: str) -> None:
    """In memory expired rows are dropped and counted; with segments only rows of an expired segment are counted, the rest is never seen."""
    task = make(window(retention_ms=100))
    task.store.put("k", "new", 1000)
    task.store.put("k", "late", 900)
    task.store.put("k", "just in time", 901)
    assert task.late == (1 if place == "in_memory" else 0)
    task.store.put("k", "new", 60_100)
    task.store.put("k", "late", 59_999)
    assert task.late == (2 if place == "in_memory" else 1)
    task.store.put("k", "late", 60_000)
    assert task.late == (3 if place == "in_memory" else 1)
    assert [value for _, value in task.store.all()] == ["new"]
    task.commit()
    task.reopen()
    assert [value for _, value in task.store.all()] == ["new"]
    task.store.put("k", "late", 1)
    assert [value for _, value in task.store.all()] == ["new"]


def test_null_in_a_store_with_duplicates(make: MakeTask, place: str) -> None:
    """In memory it moves the store's time, and may be late; RocksDB ignores it."""
    task = make(window(retention_ms=100, retain_duplicates=True))
    task.store.put("k", "v", 0)
    task.store.put("k", None, 100)
    in_memory = place == "in_memory"
    assert list(task.store.fetch("k", 0, 10)) == ([] if in_memory else [(0, "v")])
    task.store.put("k", None, 0)
    assert task.late == (1 if in_memory else 0)
    task.commit()
    task.reopen()
    assert list(task.store.fetch("k", 0, 10)) == ([] if in_memory else [(0, "v")])
    task.stores.drop()
    task.store.put("k", None, 500)
    task.store.put("k", "w", 350)
    assert [value for _, value in task.store.all()] == ([] if in_memory else ["w"])
    assert task.late == (2 if in_memory else 0)
    task.store.put("k", "x", 130_000)
    task.store.put("k", None, 100)
    assert task.late == (3 if in_memory else 0)


def test_a_null_moves_the_time_of_a_store_without_duplicates(make: MakeTask) -> None:
    """Of either type."""
    task = make(window(retention_ms=100))
    task.store.put("k", "v", 0)
    task.store.put("k", None, 100)
    assert list(task.store.all()) == []
    task.commit()
    task.reopen()
    task.store.put("k", "w", 0)
    assert list(task.store.all()) == []


def test_drop_takes_back_windows_and_the_stores_time(make: MakeTask, stage: str) -> None:
    """Rows that have expired by a void put are there again."""
    task = make(window(retention_ms=100))
    task.store.put("k", "a", 0)
    task.store.put("k", "b", 10)
    if stage == "frozen":
        task.commit()
        task.store.put("x", "void", 10)
    bring(task, "kept" if stage == "open" else stage)
    task.store.put("k", "c", 0)
    task.store.put("k", "d", 5)
    task.store.put("k", None, 10)
    task.store.put("j", "far", 10_000)
    assert [value for _, value in task.store.all()] == ["far"]
    task.stores.drop()
    assert list(task.store.all()) == [(("k", 0), "a"), (("k", 10), "b")]
    assert list(task.store.fetch("k", 0, 10)) == [(0, "a"), (10, "b")]
    assert task.commit() == {}


def test_entries_of_windows(make: MakeTask, stage: str) -> None:
    """get_entry, put_entry and fetch_entries work with plain tuples; a value without a value deletes."""
    task = make(window(timestamped=True, value=LONG))
    store = task.store
    store.put_entry("a", 10, (1, 11))
    store.put("a", ValueAndTimestamp(2, 22), 20)
    store.put("a", ValueAndTimestamp(3, 33), 30)
    store.put("a", ValueAndTimestamp(None, 34), 30)
    bring(task, stage)
    store = task.store
    assert [store.get_entry("a", start) for start in (10, 20, 30, 40)] == [(1, 11), (2, 22), None, None]
    assert store.get_entry("b", 10) is None
    assert type(store.get_entry("a", 20)) is tuple
    assert store.fetch_entries("a", 0, 99) == [(10, (1, 11)), (20, (2, 22))]
    assert store.fetch("a", 10) == ValueAndTimestamp(1, 11)
    assert list(store.all()) == [(("a", 10), ValueAndTimestamp(1, 11)), (("a", 20), ValueAndTimestamp(2, 22))]


def test_mutable_values_of_windows_do_not_leak(make: MakeTask, stage: str) -> None:
    """Each read is a new object, and changes to the put one do not affect the store."""
    task = make(window(key=DOUBLE, value=json()))
    value = [1]
    task.store.put(0.5, value, 10)
    value.append(2)
    bring(task, stage)
    store = task.store
    for _ in range(2):
        for read in (
            store.fetch(0.5, 10),
            next(store.fetch(0.5, 0, 99))[1],
            next(store.all())[1],
            store.fetch_entries(0.5, 0, 99)[0][1][0],
        ):
            assert read == [1]
            read.append(2)
    store.put(0.5, [3], 10)
    assert list(store.all()) == [((0.5, 10), [3])]
    task.stores.drop()
    if stage not in {"frozen", "open"}:
        assert list(task.store.all()) == [((0.5, 10), [1])]


@pytest.mark.parametrize("duplicates", [False, True])
def test_rows_that_no_window_store_can_write_are_refused(make: MakeTask, duplicates: bool) -> None:
    """Value, key and start, when they are put; stream time stays as it was."""
    task = make(window(key=LONG, value=LONG, retain_duplicates=duplicates))
    task.store.put(1, 1, 5)
    for key, value, start in ((1, 1 << 63, 9_000), (1 << 63, 1, 6), (1, 1, 1 << 63)):
        with pytest.raises(SerializationError, match="store s"):
            task.store.put(key, value, start)
    assert list(task.store.all()) == [((1, 5), 1)]
    assert len(task.log(task.stores.freeze())["s"]) == 1


def test_a_closed_window_store_says_so(make: MakeTask) -> None:
    """For any call."""
    store = (task := make(window())).store
    store.put("a", "x", 5)
    rows = store.all()
    task.stores.close(clean=False)
    for call in (lambda: store.fetch("a", 5), lambda: store.fetch("a", 0, 9), lambda: store.put("a", "x", 5), store.all):
        with pytest.raises(StoreClosed, match="store s"):
            call()
    with pytest.raises(StoreClosed, match="before it was read to its end"):
        next(rows)


def test_memory_holds_only_visible_rows(make: MakeTask) -> None:
    """Expired rows leave memory while the store is in use, key by key."""
    task = make(window(retention_ms=100, value=LONG, timestamped=True))
    for time in range(0, 20_000, 10):
        task.store.put_entry(f"k{time % 370}", time, (time, time))
        task.store.put_entry("always", time, (time, time))
        if time % 100 == 0:
            task.store.fetch_entries("always", 0, time)
            task.commit()
            task.flush()
    assert len(list(task.store.all())) == 20
    assert task.store._resident < 100
    assert sum(1 for _ in task.store.handles()) < 100


def test_old_windows_leave_memory_for_the_disk(on_disk: MakeTask) -> None:
    """When more is in memory than the limit, the oldest go; they are found on disk when they are asked for."""
    task = on_disk(window(retention_ms=10_000_000, value=LONG, timestamped=True), shared=SharedResources(resident_bytes=30_000))
    expected = {}
    for time in range(500):
        key = f"k{time % 7}"
        expected[key, time * 1000] = (time, time)
        task.store.put_entry(key, time * 1000, (time, time))
        if time % 50 == 0:
            task.commit()
            task.flush()
    assert task.store._resident < 300
    assert [((key, start), entry) for key, start, entry in task.store.fetch_all_entries(0, 10_000_000)] == sorted(
        expected.items(), key=lambda item: (item[0][1], item[0][0])
    )
    task.commit()
    task.flush()
    for (key, start), entry in expected.items():
        assert task.store.get_entry(key, start) == entry
    assert task.store.get_entry("k0", 1000) is None
    for key in {key for key, _ in expected}:
        task.flush()
        assert task.store.fetch_entries(key, 0, 10_000_000) == [(start, entry) for (name, start), entry in expected.items() if name == key]
    task.store.put_entry("k0", 0, (-1, -1))
    task.store.put_entry("k1", 1000, None)
    assert task.store.fetch_entries("k0", 0, 0) == [(0, (-1, -1))]
    task.stores.drop()
    assert task.store.fetch_entries("k0", 0, 0) == [(0, (0, 0))]
    assert task.store.get_entry("k1", 1000) == (1, 1)


def test_a_put_over_a_row_on_disk_alone_is_taken_back(on_disk: MakeTask) -> None:
    """The rollback holds also when the rest of the key was read from disk in between."""
    task = on_disk(window())
    for start in (10, 20):
        task.store.put("k", str(start), start)
    task.commit()
    task.reopen()
    task.store.put("k", "void", 10)
    assert list(task.store.fetch("k", 0, 99)) == [(10, "void"), (20, "20")]
    task.stores.drop()
    assert list(task.store.fetch("k", 0, 99)) == [(10, "10"), (20, "20")]


def test_rows_read_from_disk_expire_too(on_disk: MakeTask) -> None:
    """Keys that were read in whole are forgotten when none of their rows on disk is visible any more."""
    task = on_disk(window(retention_ms=100))
    for start in range(50):
        task.store.put("k", str(start), start)
    task.commit()
    task.reopen()
    assert len(list(task.store.fetch("k", 0, 50))) == 50
    for start in range(50, 400, 10):
        assert task.store.fetch("k", start - 60) == (None if start == 50 else str(start - 60))
        task.store.put("k", str(start), start)
        task.store.put(f"other {start}", "x", start)
        task.commit()
        task.flush()
    assert task.store._loaded == set()
    assert [start for start, _ in task.store.fetch("k", 0, 500)] == list(range(300, 400, 10))


def test_commits_go_on_while_old_windows_leave_memory(on_disk: MakeTask) -> None:
    """Commits between two steps are looked at before anything leaves memory."""
    task = on_disk(window(retention_ms=1 << 40, value=LONG), shared=SharedResources(resident_bytes=300_000))
    for key in range(2000):
        task.store.put(f"{key}", key, key)
    task.commit()
    for step, _ in enumerate(task.stores.flush_steps()):
        if step % 5 == 0:
            for key in range(2500):
                task.store.put(f"{key}", step, 3000 + step)
            task.commit()
        last = step - step % 5
        if step > 60:
            break
    found = task.store.fetch_all_entries(0, 1 << 20)
    assert [(int(key), start, value) for key, start, (value, _) in found if start < 3000] == [(key, key, key) for key in range(2000)]
    assert len(found) == 2000 + 2500 * (last // 5 + 1)
    task.reopen(clean=False)
    assert task.store.fetch_all_entries(0, 1 << 20) == found


def test_keys_of_which_one_begins_like_the_other(on_disk: MakeTask) -> None:
    """On disk a key is followed by a time: the bytes of one key's window may lie among those of another."""
    task = on_disk(window(retention_ms=1 << 50))
    keys = ["a", "a\0", "a\0\0\0\0\0\0", "a\0\0\0\0\0\0\0\0\0\0\0\0", "ab"]
    for key in keys:
        for start in (0, 1, 256, 1 << 40):
            task.store.put(key, f"{key}@{start}", start)
    task.commit()
    task.reopen()
    for key in keys:
        assert list(task.store.fetch(key, 0, 1 << 45)) == [(start, f"{key}@{start}") for start in (0, 1, 256, 1 << 40)]


def test_unlimited_retention(make: MakeTask, stage: str) -> None:
    """The windows of an unlimited definition have the longest retention there is."""
    task = make(window(retention_ms=(1 << 63) - 1))
    for start in (0, 5, 1 << 40):
        task.store.put("k", str(start), start)
    bring(task, stage)
    assert [value for _, value in task.store.fetch("k", 0, (1 << 63) - 1)] == ["0", "5", str(1 << 40)]
