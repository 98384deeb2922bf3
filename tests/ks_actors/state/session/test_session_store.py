"""The behavior of a session store, for any engine; with the expectations of Kafka Streams' own tests."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from ks_actors import Window, Windowed
from ks_actors._errors import StoreClosed
from ks_actors.serdes import BYTES, DOUBLE, LONG, STRING, json
from ks_actors.state import SharedResources, reader_of
from tests.ks_actors.state.conftest import MakeTask
from tests.ks_actors.state.helpers import Task, session, window

RETENTION = 10_000
LATEST = 2**63 - 1
STAGES = ("open", "frozen", "kept", "written", "reopened", "restored")
ENDS = struct.Struct(">qq")


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


def at(key: Any, start: int, end: int) -> Windowed[Any]:
    return Windowed(key, Window(start, end))


def java(make: MakeTask, **options: Any) -> Task:
    """A store as the Java tests have it."""
    return make(session(value=LONG, retention_ms=RETENTION, **options))


def fill(task: Task, *rows: tuple[Windowed[Any], Any]) -> None:
    for where, value in rows:
        task.store.put(where, value)


def test_sessions_that_overlap_are_found(make: MakeTask, stage: str) -> None:
    """They end at one time or later and start at another or earlier; the earliest first, or the latest."""
    task = java(make)
    rows = [(at("a", 10, 10), 1), (at("a", 500, 1000), 2), (at("a", 1500, 2000), 1), (at("a", 2500, 3000), 2)]
    fill(task, *rows, (at("aa", 0, 0), 5), (at("b", 600, 700), 9))
    bring(task, stage)
    store = task.store
    for earliest, latest in ((0, 1000), (400, 600), (-1, 1000), (1500, 2500), (1001, 1499), (0, LATEST), (3001, LATEST), (2000, 1500)):
        expected = [(window, value) for window, value in rows if window.window.end >= earliest and window.window.start <= latest]
        assert list(store.find_sessions("a", earliest, latest)) == expected
        assert list(store.backward_find_sessions("a", earliest, latest)) == expected[::-1]
        entries = [(*window.window, value) for window, value in expected]
        assert [(start, end, entry[0]) for start, end, entry in store.find_entries("a", earliest, latest)] == entries
    assert list(store.fetch("a")) == rows
    assert list(store.backward_fetch("a")) == rows[::-1]
    assert list(store.fetch("c")) == []


def test_sessions_of_a_range_of_keys(make: MakeTask, stage: str) -> None:
    """Bounds are included, None is none; where the order of segments is that of time, and of keys, so is the order of records."""
    task = java(make)
    rows = [(at("a", 0, 0), 1), (at("aa", 10, 10), 2), (at("aaa", 100, 100), 3), (at("aaaa", 100, 100), 6), (at("b", 1000, 1000), 4)]
    rows += [(at("bb", 1500, 2000), 5), (at("bbb", 2500, 3000), 6)]
    fill(task, *rows)
    bring(task, stage)
    store = task.store
    for low, high in (("aa", "bb"), (None, "bb"), ("aa", None), (None, None), ("b", "aa"), ("c", "d")):
        expected = [row for row in rows if (low is None or row[0].key >= low) and (high is None or row[0].key <= high)]
        assert list(store.fetch_range(low, high)) == expected
        assert list(store.backward_fetch_range(low, high)) == expected[::-1]
        expected = [(window, value) for window, value in expected if window.window.end >= 100 and window.window.start <= 1000]
        assert list(store.find_sessions_range(low, high, 100, 1000)) == expected
        assert list(store.backward_find_sessions_range(low, high, 100, 1000)) == expected[::-1]


def test_one_session(make: MakeTask, stage: str) -> None:
    """It is known by key, start and end, and nothing less."""
    task = java(make)
    fill(task, (at("a", 0, 4), 1), (at("aa", 0, 3), 2), (at("aa", 0, 4), 3), (at("aa", 1, 4), 4), (at("aaa", 0, 4), 5))
    bring(task, stage)
    store = task.store
    assert store.fetch_session("aa", 0, 4) == 3
    assert (store.fetch_session("aa", 0, 5), store.fetch_session("aa", 4, 4), store.fetch_session("b", 0, 4)) == (None, None, None)
    assert store.get_entry("aa", 1, 4) == (4, 0)


def test_the_order_of_sessions_of_one_end(make: MakeTask, place: str, stage: str) -> None:
    """In memory the latest start comes first, where there are segments the earliest."""
    task = java(make)
    fill(task, (at("a", 3, 9), 3), (at("a", 1, 9), 1), (at("b", 0, 9), 0), (at("a", 2, 9), 2))
    bring(task, stage)
    order = [3, 2, 1] if place == "in_memory" else [1, 2, 3]
    assert [value for _, value in task.store.fetch("a")] == order
    assert [value for _, value in task.store.backward_fetch("a")] == order[::-1]
    assert [value for _, value in task.store.fetch_range(None, None)] == [*order, 0]
    ended = [3, 2, 1, 0] if place == "in_memory" else [0, 1, 2, 3]
    assert [value for _, value in task.store.find_ended_sessions(9, 9)] == ended
    assert [task.store.get_entry(*session) for session in task.store.ended_sessions(0, LATEST)] == [(value, 0) for value in ended]


def test_the_order_of_all_keys(make: MakeTask, place: str, stage: str) -> None:
    """In memory by end, then key; where there are segments by segment, then key, then end."""
    task = make(session(value=LONG, retention_ms=200_000))
    fill(task, (at("b", 5, 5), 1), (at("a", 7, 7), 2), (at("a", 5, 5), 3), (at("b", 5, 120_000), 4), (at("a", 6, 120_001), 5))
    bring(task, stage)
    assert [value for _, value in task.store.fetch_range(None, None)] == ([3, 1, 2, 4, 5] if place == "in_memory" else [3, 2, 1, 5, 4])
    assert [value for _, value in task.store.find_ended_sessions(5, 7)] == [3, 1, 2]


def test_deletes(make: MakeTask, stage: str) -> None:
    """remove, and a put of None, delete one session; deleting a missing one does nothing."""
    task = java(make)
    fill(task, (at("a", 0, 1000), 1), (at("a", 1500, 2500), 2), (at("a", 3000, 3000), 3), (at("a", 3000, 3000), 4), (at("a", 0, 2000), 5))
    task.store.remove(at("a", 0, 1000))
    task.store.put(at("a", 1500, 2500), None)
    task.store.remove(at("a", 7, 7))
    task.store.put(at("b", 7, 7), None)
    task.store.remove(at("a", 0, 2000))
    task.store.put(at("a", 0, 2000), 6)
    bring(task, stage)
    assert list(task.store.fetch("a")) == [(at("a", 0, 2000), 6), (at("a", 3000, 3000), 4)]
    assert list(task.store.fetch("b")) == []
    if stage != "frozen":
        task.store.remove(at("a", 0, 2000))
        task.store.remove(at("a", 3000, 3000))
        task.commit()
        task.reopen(clean=False)
        assert list(task.store.fetch_range(None, None)) == []


def test_a_row_put_and_deleted_in_one_transaction_leaves_no_trace(make: MakeTask) -> None:
    """Most sessions grow into others before anybody else has seen them: they do not get into the changelog, nor does their memory stay."""
    task = java(make)
    for end in range(1000):
        if end:
            task.store.remove(at("a", 0, end - 1))
        task.store.put(at("a", 0, end), end)
        assert task.store.find_entries("a", end, end) == [(0, end, (end, 0))]
    assert 0 < task.stores.uncommitted_bytes < 2000
    assert [len(records) for records in task.commit().values()] == [1]
    task.store.remove(at("a", 0, 999))
    task.store.put(at("a", 0, 1000), 7)
    records = task.commit()["s"]
    assert [(key, value is None) for key, value, _ in records] == [(b"a" + ENDS.pack(999, 0), True), (b"a" + ENDS.pack(1000, 0), False)]


def test_records_of_the_changelog(make: MakeTask) -> None:
    """Keys are key, end and start, values plain, timestamps those of the records that were processed (SessionKeySchema)."""
    task = make(session(value=STRING))
    task.now = 17
    task.store.put(at("key", 3, 9), "x")
    assert task.commit() == {"s": [(b"key" + ENDS.pack(9, 3), b"x", 17)]}
    task.now = 18
    task.store.remove(at("key", 3, 9))
    assert task.commit() == {"s": [(b"key" + ENDS.pack(9, 3), None, 18)]}


def test_expired_sessions_are_neither_seen_nor_put(make: MakeTask, place: str) -> None:
    """They end at the latest end minus the retention, or before. In memory each put is counted, with segments those into a segment that is gone."""
    task = make(session(value=LONG, retention_ms=100_000))
    fill(task, (at("a", 0, 10), 1), (at("a", 0, 99_999), 2), (at("b", 0, 100_010), 3))
    assert list(task.store.fetch_range(None, None)) == [(at("a", 0, 99_999), 2), (at("b", 0, 100_010), 3)]
    assert task.store.fetch_session("a", 0, 10) is None
    task.store.put(at("a", 0, 10), 4)
    task.store.remove(at("a", 0, 9))
    assert task.late == (1 if place == "in_memory" else 0)
    task.store.put(at("a", 0, 11), 5)
    assert [value for _, value in task.store.fetch("a")] == [5, 2]
    task.store.put(at("b", 0, 160_000), 6)
    task.store.put(at("a", 0, 59_000), 7)
    assert task.late == (2 if place == "in_memory" else 1)
    task.store.put(at("a", 0, 10), None)
    assert task.late == (3 if place == "in_memory" else 2)
    task.commit()
    task.reopen(clean=False)
    assert [value for _, value in task.store.fetch_range(None, None)] == [2, 3, 6]


def test_a_delete_moves_time_only_where_there_are_segments(make: MakeTask, place: str) -> None:
    """As in Kafka Streams: its store in memory does not look at the time of a removed session."""
    task = java(make)
    task.store.put(at("a", 0, 10), 1)
    task.store.remove(at("b", 0, 50_000))
    assert list(task.store.fetch("a")) == ([(at("a", 0, 10), 1)] if place == "in_memory" else [])


def test_many_sessions_of_a_key(make: MakeTask, stage: str) -> None:
    """They are found by time, come they in order or not, and those that go are not found any more."""
    task = make(session(value=LONG, retention_ms=10_000_000))
    for number in (*range(0, 400, 2), *range(399, 0, -2)):
        task.store.put(at("a", number * 100, number * 100 + 50), number)
        if number % 10 == 3:
            assert [entry[0] for *_, entry in task.store.find_entries("a", number * 100, number * 100 + 10)] == [number]
    for number in range(0, 400, 3):
        task.store.remove(at("a", number * 100, number * 100 + 50))
    bring(task, stage)
    left = [number for number in range(400) if number % 3]
    assert [value for _, value in task.store.fetch("a")] == left
    assert [value for _, value in task.store.find_sessions("a", 10_000, 20_000)] == [number for number in left if 100 <= number <= 200]
    assert len(list(task.store.fetch_range(None, None))) == len(left)


def test_bytes_that_begin_alike(make: MakeTask, stage: str) -> None:
    """A key is not taken for another that begins with it, though times follow it on disk."""
    task = make(session(key=BYTES, value=LONG, retention_ms=200_000))
    keys = [b"\0", b"\0\0", b"\0\0\0"]
    rows = [(at(keys[number % 3], number, 100), number) for number in range(9)]
    fill(task, *rows)
    bring(task, stage)
    for key in keys:
        assert {value for _, value in task.store.fetch(key)} == {value for window, value in rows if window.key == key}
        assert {value for _, value in task.store.fetch_range(key, key)} == {value for window, value in rows if window.key == key}


@pytest.mark.parametrize(("key", "name"), [(DOUBLE, 1.5), (STRING, "a")])
def test_values_that_can_be_changed(make: MakeTask, key: Any, name: Any, stage: str) -> None:
    """Objects of an earlier transaction are copies: to change them changes nothing that is stored."""
    task = make(session(key=key, value=json()))
    task.store.put(at(name, 0, 5), [1])
    bring(task, stage)
    if stage != "open":
        task.store.fetch_session(name, 0, 5).append("mine")
    assert [value for _, value in task.store.fetch(name)] == [[1]]
    task.stores.drop()
    assert task.store.fetch_session(name, 0, 5) == (None if stage in {"open", "frozen"} else [1])


def test_drop_goes_back(make: MakeTask, stage: str) -> None:
    """To the last commit: puts are gone, removed sessions are there, and time has not moved."""
    task = java(make)
    fill(task, (at("a", 0, 5), 1), (at("b", 0, 5), 2))
    task.commit()
    bring(task, stage if stage != "frozen" else "kept")
    task.store.remove(at("a", 0, 5))
    fill(task, (at("a", 0, 7), 3), (at("b", 0, 5), 4), (at("c", 0, 50_000), 5))
    if stage == "frozen":
        task.stores.freeze()
        task.store.put(at("a", 0, 5), 6)
    task.stores.drop()
    assert list(task.store.fetch_range(None, None)) == [(at("a", 0, 5), 1), (at("b", 0, 5), 2)]


def test_evicted_rows_are_on_disk(on_disk: MakeTask) -> None:
    """With room for few records all that is committed is read again, by key and of all keys, and can be changed."""
    task = on_disk(session(value=LONG, retention_ms=1_000_000), shared=SharedResources(resident_bytes=3_000, tail_records=10))
    for number in range(300):
        task.store.put(at(str(number % 7), number * 1000, number * 1000 + 10), number)
        if number % 20 == 0:
            task.commit()
            task.flush()
    task.commit()
    task.flush()
    assert len(task.store._tracks) < 7 or sum(map(len, task.store._tracks.values())) < 300
    assert task.store.fetch_session("0", 0, 10) == 0
    assert [value for _, value in task.store.fetch("1")] == list(range(1, 300, 7))
    task.store.remove(at("2", 2000, 2010))
    task.store.put(at("3", 3000, 3010), 1000)
    assert sorted(value for _, value in task.store.fetch_range(None, None)) == sorted({*range(300), 1000} - {2, 3})
    task.commit()
    task.flush()
    assert sorted(value for _, value in task.store.fetch_range(None, None)) == sorted({*range(300), 1000} - {2, 3})
    task.reopen()
    assert task.store.fetch_session("2", 2000, 2010) is None
    assert task.store.fetch_session("3", 3000, 3010) == 1000


@pytest.mark.parametrize("kind", ["window", "window by start", "session"])
def test_rows_that_expire_with_a_transaction_are_there_for_queries_until_it_is_committed(on_disk: MakeTask, kind: str) -> None:
    """The rows stay visible also when their key was read from disk in that transaction."""
    advance = 1_000 if kind == "window by start" else 0
    spec = session(value=LONG, retention_ms=100_000) if kind == "session" else window(value=LONG, retention_ms=100_000, advance_ms=advance)
    task = on_disk(spec)

    def put(key: str, time: int, value: int) -> None:
        if kind == "session":
            task.store.put(at(key, time, time), value)
        else:
            task.store.put(key, value, time)

    put("a", 50_000, 1)
    put("a", 120_000, 2)
    task.commit()
    task.reopen()
    put("b", 200_000, 3)
    assert [value for _, value in (task.store.fetch("a") if kind == "session" else task.store.fetch("a", 0, 300_000))] == [2]
    reader: Any = reader_of(task.store)
    for committed, values in ((True, [1, 2]), (False, [2])):
        find = reader.find if kind == "session" else reader.fetch
        assert [entry[0] for *_, entry in find("a", 0, 300_000, committed=committed, reverse=False)] == values
    handle = ("a", 50_000, 50_000) if kind == "session" else ("a", 50_000)
    assert reader.get(*handle, committed=True) == (1, 0)


@pytest.mark.parametrize("kind", ["window", "window by start", "session"])
def test_a_row_replaced_before_its_key_was_read_is_there_for_queries(on_disk: MakeTask, kind: str) -> None:
    """A put does not read the earlier row: a reader of committed rows finds it on disk, also when the rest of its key is in memory."""
    advance = 1 if kind == "window by start" else 0
    task = on_disk(session(value=LONG) if kind == "session" else window(value=LONG, advance_ms=advance))
    for value in (1, 2):
        for start in (5, 6):
            if kind == "session":
                task.store.put(at("a", start, start), value)
            else:
                task.store.put("a", value, start)
            if value == 2:
                break
        if value == 1:
            task.commit()
            task.reopen()
    assert [value for _, value in (task.store.fetch("a") if kind == "session" else task.store.fetch("a", 0, 9))] == [2, 1]
    reader: Any = reader_of(task.store)
    find, handle = (reader.find, ("a", 5, 5)) if kind == "session" else (reader.fetch, ("a", 5))
    for committed, values in ((True, [1, 1]), (False, [2, 1])):
        assert reader.get(*handle, committed=committed) == (values[0], 0)
        assert [entry[0] for *_, entry in find("a", 0, 9, committed=committed, reverse=False)] == values


def test_a_row_put_before_it_was_read_is_deleted_on_disk_too(on_disk: MakeTask) -> None:
    """A put does not read; the earlier row must not come back when it is deleted in the same transaction."""
    task = on_disk(session(value=LONG, retention_ms=100_000))
    task.store.put(at("a", 0, 5), 1)
    task.commit()
    task.reopen()
    task.store.put(at("a", 0, 5), 2)
    assert [value for _, value in task.store.fetch("a")] == [2]
    task.store.remove(at("a", 0, 5))
    task.commit()
    task.reopen()
    assert list(task.store.fetch("a")) == []


def test_wrong_sessions_are_refused(make: MakeTask) -> None:
    """A session has a key, and ends no earlier than it starts."""
    store = java(make).store
    calls: tuple[Callable[[], Any], ...] = (
        lambda: store.put(at(None, 0, 1), 1),
        lambda: store.fetch(None),
        lambda: store.fetch_session(None, 0, 1),
    )
    for call in calls:
        with pytest.raises(TypeError, match="a key cannot be None"):
            call()
    for start, end in ((-1, 5), (5, 4)):
        with pytest.raises(ValueError, match="does not end before it starts"):
            store.put(at("a", start, end), 1)


def test_a_closed_store_says_so(make: MakeTask) -> None:
    """For any call."""
    task = java(make)
    task.store.put(at("a", 0, 5), 1)
    store = task.store
    rows = store.fetch("a")
    task.close()
    calls: tuple[Callable[[], Any], ...] = (
        lambda: store.put(at("a", 0, 5), 1),
        lambda: store.fetch("a"),
        lambda: store.fetch_session("a", 0, 5),
        lambda: next(rows),
    )
    for call in calls:
        with pytest.raises(StoreClosed):
            call()
