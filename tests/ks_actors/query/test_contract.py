"""The queries of every store: each kind, in each engine, at each level of isolation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ks_actors import QueryFailed, ValueAndTimestamp, VersionedRecord, Window, Windowed
from ks_actors.log import IsolationLevel
from ks_actors.query import FailureReason, StoreQueries, StoreScan
from ks_actors.testing import AppHarness
from ks_actors.topology import StoreType
from tests.ks_actors.query.helpers import COMMITTED, ENGINES, LEVELS, SECOND, everything, put
from tests.ks_actors.runtime.helpers import in_app, provided

pytestmark = [pytest.mark.parametrize("engine", ENGINES), pytest.mark.parametrize("isolation", LEVELS, ids=lambda level: level.name)]


Stores = Callable[..., StoreQueries[Any, Any]]


def with_stores(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test with committed values a1, b1, bb1, c1, and on top of them, not committed, a2, no b, d2, from the next second on."""

    @in_app(
        lambda engine: everything(engine),
        topics={"in": 3},
        commit_interval_ms=3_600_000,
        processing_guarantee="exactly_once_v2",
        transaction_timeout_ms=3_600_000,
    )
    async def run(harness: AppHarness, /, isolation: IsolationLevel, **given: Any) -> None:
        await put(harness, a="a1", b="b1", bb="bb1", c="c1")
        await harness.app.commit()
        await put(harness, a="a2", b="-", d="d2")
        await test(lambda name, **options: harness.app.store(name, isolation=isolation, **options), isolation=isolation, **given)
        # Reading has changed nothing: a commit makes final what was put.
        await harness.app.commit()
        assert await harness.app.store("plain", isolation=COMMITTED).all() == [("a", "a2"), ("bb", "bb1"), ("c", "c1"), ("d", "d2")]

    return provided(test, run)


def table(isolation: IsolationLevel) -> dict[str, str]:
    """Return the expected rows of a table."""
    if isolation is COMMITTED:
        return {"a": "a1", "b": "b1", "bb": "bb1", "c": "c1"}
    return {"a": "a2", "bb": "bb1", "c": "c1", "d": "d2"}


def windows(isolation: IsolationLevel) -> dict[tuple[str, int], str]:
    """Return the expected windows: keys are put one second after the other."""
    found = {("a", SECOND): "a1", ("b", 2 * SECOND): "b1", ("bb", 3 * SECOND): "bb1", ("c", 4 * SECOND): "c1"}
    if isolation is not COMMITTED:
        del found["b", 2 * SECOND]
        found |= {("a", SECOND): "a2", ("d", 3 * SECOND): "d2"}
    return found


def history(isolation: IsolationLevel) -> dict[str, list[tuple[int, list[str] | None]]]:
    """Return the expected values of each key, by the time from which on it had them; later puts have the earlier times here."""
    found: dict[str, list[tuple[int, list[str] | None]]] = {
        "a": [(SECOND + 5, ["a1"])],
        "b": [(2 * SECOND + 5, ["b1"])],
        "bb": [(3 * SECOND + 5, ["bb1"])],
        "c": [(4 * SECOND + 5, ["c1"])],
    }
    if isolation is not COMMITTED:
        found |= {"a": [(SECOND + 5, ["a2"])], "b": [(2 * SECOND + 5, None)], "d": [(3 * SECOND + 5, ["d2"])]}
    return found


async def streamed(scan: StoreScan[Any]) -> list[Any]:
    """Read a scan row by row."""
    return [row async for row in scan]


@pytest.mark.parametrize("name", ["plain", "timed", "lists"])
@with_stores
async def test_a_key_value_store_is_read_by_key(store: Stores, engine: StoreType, isolation: IsolationLevel, name: str) -> None:
    """`get` returns the value, without its timestamp, and None for a missing key."""
    expected = table(isolation)
    for key in ("a", "b", "bb", "c", "d", "e"):
        value = expected.get(key)
        assert await store(name).get(key) == ([value] if name == "lists" and value is not None else value)
    with pytest.raises(TypeError, match="a key cannot be None"):
        await store(name).get(None)


@pytest.mark.parametrize("name", ["plain", "timed"])
@with_stores
async def test_a_key_value_store_is_scanned(store: Stores, engine: StoreType, isolation: IsolationLevel, name: str) -> None:
    """Rows of all partitions come in the order of the keys' bytes, or against it, between bounds that are included."""
    rows = sorted(table(isolation).items())
    assert await store(name).all() == rows
    assert await streamed(store(name).all()) == rows
    assert await store(name).reverse_all() == rows[::-1]
    for low, high in (("a", "bb"), ("b", "c"), (None, "b"), ("bb", None), ("c", "a"), ("x", "y")):
        within = [row for row in rows if (low is None or row[0] >= low) and (high is None or row[0] <= high)]
        assert await store(name).range(low, high) == within
        assert await store(name).reverse_range(low, high) == within[::-1]
    assert await store(name).prefix_scan("b") == [row for row in rows if row[0].startswith("b")]
    assert await store(name).prefix_scan(98, lambda letter: bytes((letter,))) == [row for row in rows if row[0].startswith("b")]
    by_partition = [await store(name, partition=number).all() for number in range(3)]
    assert sorted(row for part in by_partition for row in part) == rows
    assert sum(map(bool, by_partition)) > 1
    assert await store(name).approximate_num_entries() >= 4


@with_stores
async def test_a_window_store_is_read_by_key_and_time(store: Stores, engine: StoreType, isolation: IsolationLevel) -> None:
    """`fetch` with one time returns the value of that window; with two it scans windows by time, `backward_fetch` the latest first."""
    expected = windows(isolation)
    for name in ("window", "timed-window"):
        for key in ("a", "b", "bb", "d"):
            of_key = sorted((start, value) for (other, start), value in expected.items() if other == key)
            for start in range(0, 6 * SECOND, SECOND):
                assert await store(name).fetch(key, start) == expected.get((key, start))
            assert await store(name).fetch(key, 0, 10 * SECOND) == of_key
            assert await store(name).backward_fetch(key, 0, 10 * SECOND) == of_key[::-1]
            assert await store(name).fetch(key, 2 * SECOND, 2 * SECOND) == [row for row in of_key if row[0] == 2 * SECOND]
    with pytest.raises(TypeError, match="a key cannot be None"):
        await store("window").fetch(None, 1)


@with_stores
async def test_a_window_store_is_scanned(store: Stores, engine: StoreType, isolation: IsolationLevel) -> None:
    """All windows within a span come in the order of the store's own `fetch_all`, or against it."""
    rows = sorted(windows(isolation).items(), key=lambda row: (row[0][1], row[0][0]) if engine == "in_memory" else row[0])
    for name in ("window", "timed-window"):
        assert await store(name).all() == rows
        assert await store(name).reverse_all() == rows[::-1]
        within = [row for row in rows if 2 * SECOND <= row[0][1] <= 3 * SECOND]
        assert await streamed(store(name).fetch_all(2 * SECOND, 3 * SECOND)) == within
        assert await store(name).backward_fetch_all(2 * SECOND, 3 * SECOND) == within[::-1]


def duplicates(isolation: IsolationLevel) -> list[tuple[tuple[str, int], str]]:
    """Return the expected content of a store that keeps all, by key, then by time, then as they were put; there are no deletes."""
    found = [(("a", SECOND), "a1"), (("b", 2 * SECOND), "b1"), (("bb", 3 * SECOND), "bb1"), (("c", 4 * SECOND), "c1")]
    return found if isolation is COMMITTED else [found[0], (("a", SECOND), "a2"), *found[1:], (("d", 3 * SECOND), "d2")]


@with_stores
async def test_a_window_store_with_duplicates_is_read(store: Stores, engine: StoreType, isolation: IsolationLevel) -> None:
    """All that was put of a key and window comes, in the order in which it was put, or against it; of a key, of a span, of all keys."""
    expected = duplicates(isolation)
    kept = store("duplicates")
    for key in ("a", "b", "bb", "d", "e"):
        of_key = [(start, value) for (other, start), value in expected if other == key]
        assert await kept.fetch(key, 0, 10 * SECOND) == of_key
        assert await kept.backward_fetch(key, 0, 10 * SECOND) == of_key[::-1]
        assert await kept.fetch(key, 2 * SECOND, 2 * SECOND) == [row for row in of_key if row[0] == 2 * SECOND]
    rows = sorted(expected, key=lambda row: (row[0][1], row[0][0])) if engine == "in_memory" else expected
    assert await kept.all() == rows
    assert await kept.reverse_all() == rows[::-1]
    within = [row for row in rows if 2 * SECOND <= row[0][1] <= 3 * SECOND]
    assert await streamed(kept.fetch_all(2 * SECOND, 3 * SECOND)) == within
    assert await kept.backward_fetch_all(2 * SECOND, 3 * SECOND) == within[::-1]


@with_stores
async def test_a_versioned_store_is_read_as_of_a_time(store: Stores, engine: StoreType, isolation: IsolationLevel) -> None:
    """`get` returns the latest version, or that of `as_of`; `versions` all of a span. Returned objects are the caller's own."""
    versioned = store("versioned")
    for key, versions in history(isolation).items():
        ((time, value),) = versions
        expected = None if value is None else VersionedRecord(value, time)
        for _ in range(2):
            assert await versioned.get(key) == expected
            found = await versioned.get(key, as_of=time)
            assert found == expected
            if found is not None:
                found.value.append("mine")
        assert await versioned.get(key, time - 1) is None
        rows = [] if expected is None else [expected]
        assert await versioned.versions(key) == await versioned.versions(key, descending=True) == rows
        assert await versioned.versions(key, time_to=time - 1) == []
    assert await versioned.get("nobody") is None
    assert await versioned.versions("nobody") == []
    with pytest.raises(TypeError, match="a key cannot be None"):
        await versioned.get(None)


def sessions(isolation: IsolationLevel) -> dict[Windowed[str], str]:
    """Return the expected sessions: of five milliseconds, one second after the other."""
    return {Windowed(key, Window(start, start + 5)): value for (key, start), value in windows(isolation).items()}


@with_stores
async def test_a_session_store_is_read_by_key_and_time(store: Stores, engine: StoreType, isolation: IsolationLevel) -> None:
    """One session by its start and end; of a key all, or those that overlap with a span, by time or the latest first."""
    expected = sessions(isolation)
    session = store("session")
    for key in ("a", "b", "bb", "d", "e"):
        of_key = sorted((window, value) for window, value in expected.items() if window.key == key)
        for start in range(0, 6 * SECOND, SECOND):
            assert await session.fetch_session(key, start, start + 5) == expected.get(Windowed(key, Window(start, start + 5)))
            assert await session.fetch_session(key, start, start + 4) is None
        assert await session.fetch(key) == await session.find_sessions(key, 0, 10 * SECOND) == of_key
        assert await session.backward_fetch(key) == await session.backward_find_sessions(key, 0, 10 * SECOND) == of_key[::-1]
        overlapping = [row for row in of_key if row[0].window.start <= 2 * SECOND <= row[0].window.end]
        assert await session.find_sessions(key, 2 * SECOND, 2 * SECOND) == overlapping
    with pytest.raises(TypeError, match="a key cannot be None"):
        await session.fetch_session(None, 0, 5)


@with_stores
async def test_a_session_store_is_scanned(store: Stores, engine: StoreType, isolation: IsolationLevel) -> None:
    """Sessions of a range of keys come in the order of the store's own scan, or against it."""
    rows = sorted(sessions(isolation).items(), key=lambda row: (row[0].window.end, row[0].key) if engine == "in_memory" else row[0])
    session = store("session")
    assert await session.all() == rows
    assert await session.reverse_all() == rows[::-1]
    within = [row for row in rows if row[0].key >= "b" and row[0].window.start <= 3 * SECOND]
    assert await streamed(session.find_sessions_range("b", None, 0, 3 * SECOND)) == within
    assert await session.backward_find_sessions_range("b", None, 0, 3 * SECOND) == within[::-1]
    assert await session.find_sessions_range("b", "a") == []


@with_stores
async def test_timestamps_are_had_by_asking(store: Stores, engine: StoreType, isolation: IsolationLevel) -> None:
    """With `timestamped` each value comes with its timestamp; a store that has none says so."""
    value = table(isolation)["a"]
    expected = ValueAndTimestamp(value, SECOND + 5)
    assert await store("timed", timestamped=True).get("a") == expected
    assert (await store("timed", timestamped=True).range("a", "a")) == [("a", expected)]
    assert await store("timed-window", timestamped=True).fetch("a", SECOND) == expected
    assert await store("timed-window", timestamped=True).fetch("a", SECOND, SECOND) == [(SECOND, expected)]
    with pytest.raises(QueryFailed, match="has none") as failed:
        store("plain", timestamped=True)
    assert failed.value.reason is FailureReason.UNKNOWN_QUERY_TYPE


@with_stores
async def test_returned_objects_are_the_callers_own(store: Stores, engine: StoreType, isolation: IsolationLevel) -> None:
    """A value that can be changed in place is a copy: the caller's changes to it have no effect."""
    for _ in range(2):
        found = await store("lists").get("a")
        assert found == [table(isolation)["a"]]
        found.append("mine")
        for _, value in await store("lists").all():
            value.append("mine, too")
    assert await store("lists").all() == [(key, [value]) for key, value in sorted(table(isolation).items())]


@with_stores
async def test_each_kind_can_be_asked_its_own(store: Stores, engine: StoreType, isolation: IsolationLevel) -> None:
    """A window store has no plain keys and a key-value store no windows: that is an error with a reason."""
    for ask in (
        lambda: store("plain").fetch("a", 0),
        lambda: store("plain").fetch("a", 0, 1),
        lambda: store("plain").backward_fetch("a", 0, 1),
        lambda: store("timed").fetch_all(0, 1),
        lambda: store("window").range("a", "b"),
        lambda: store("window").prefix_scan("a"),
        lambda: store("timed-window").get("a"),
        lambda: store("duplicates").get("a"),
        lambda: store("duplicates").find_sessions("a", 0, 1),
        lambda: store("timed-window").approximate_num_entries(),
        lambda: store("plain").get("a", as_of=1),
        lambda: store("timed").versions("a"),
        lambda: store("versioned").fetch("a", 0),
        lambda: store("session").fetch("a", 0),
        lambda: store("session").get("a"),
        lambda: store("window").fetch("a"),
        lambda: store("plain").fetch_session("a", 0, 1),
        lambda: store("window").find_sessions_range("a", "b"),
        lambda: store("versioned").range("a", "b"),
    ):
        with pytest.raises(QueryFailed, match=r"cannot be queried|does not support") as failed:
            await ask()
        assert failed.value.reason is FailureReason.UNKNOWN_QUERY_TYPE
