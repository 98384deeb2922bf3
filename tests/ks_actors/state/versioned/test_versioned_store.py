"""Versioned stores: validity of versions, expiry, and the changelog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ks_actors import PUT_RETURN_CODE_NOT_PUT, PUT_RETURN_CODE_VALID_TO_UNDEFINED, StoreClosed, TopologyError, VersionedRecord
from ks_actors.records._batch import Batch
from ks_actors.serdes import INTEGER, STRING, json
from ks_actors.state import SharedResources
from ks_actors.topology import StoreKind, stores
from tests.ks_actors.state.conftest import MakeTask
from tests.ks_actors.state.helpers import Task, versioned

LATEST = PUT_RETURN_CODE_VALID_TO_UNDEFINED


def rows(task: Task) -> list[bytes]:
    """All that the engine has of the store."""
    engine, prefix = task.store.engine, task.store.prefix
    return [] if engine is None else [key for key, _ in engine.scan(prefix, prefix + b"\xff")]


def test_a_version_is_valid_until_the_next_one(make: MakeTask) -> None:
    """`get` as of a time finds the last value put at or before it, with the end of its validity; the latest one has no end."""
    store = make(versioned()).store
    assert [store.put("k", "a", 10), store.put("k", "c", 30), store.put("k", "b", 20)] == [LATEST, LATEST, 30]
    assert [store.get("k", time) for time in (9, 10, 19, 20, 29, 30, 99)] == [
        None,
        *[VersionedRecord("a", 10, 20)] * 2,
        *[VersionedRecord("b", 20, 30)] * 2,
        *[VersionedRecord("c", 30)] * 2,
    ]
    assert store.get("k") == VersionedRecord("c", 30)
    assert store.get("other") is None
    assert store.get("other", 5) is None


def test_a_delete_is_a_version_too(make: MakeTask) -> None:
    """It ends the version that was valid before, also in the past, and `delete` returns that one."""
    store = make(versioned()).store
    store.put("k", "a", 10)
    assert store.put("k", None, 20) == LATEST
    assert (store.get("k"), store.get("k", 15), store.get("k", 20)) == (None, VersionedRecord("a", 10, 20), None)
    assert store.put("k", "late", 15) == 20
    assert store.put("k", "again", 40) == LATEST
    assert store.delete("k", 45) == VersionedRecord("again", 40)
    assert store.delete("k", 17) == VersionedRecord("late", 15, 20)
    assert (store.get("k", 16), store.get("k", 18), store.get("k")) == (VersionedRecord("late", 15, 17), None, None)
    assert store.delete("nobody", 45) is None


def test_a_delete_at_the_time_of_the_latest_version_is_not_forgotten(make: MakeTask) -> None:
    """A later put before it is of the past; Kafka Streams takes it for the latest, if there was no older value."""
    store = make(versioned()).store
    store.put("k", "c", 10)
    assert store.put("k", None, 10) == LATEST
    assert store.put("k", "b", 5) == 10
    assert store.get("k") is None


def test_puts_older_than_the_history_are_dropped(make: MakeTask) -> None:
    """Neither values nor deletes; they are counted. A put exactly as old as the history is accepted."""
    task = make(versioned(history_retention_ms=100))
    store = task.store
    store.put("k", "a", 200)
    assert store.put("k", "b", 99) == PUT_RETURN_CODE_NOT_PUT
    assert store.delete("k", 99) is None
    assert task.late == 2
    assert store.put("k", "c", 100) == 200
    assert task.late == 2
    with pytest.raises(ValueError, match="-1 ms"):
        store.put("k", "d", -1)
    with pytest.raises(TypeError, match="a key cannot be None"):
        store.put(None, "d", 200)


def test_versions_that_ended_before_the_history_are_not_seen(make: MakeTask) -> None:
    """Except the latest version of a key, which never expires."""
    store = make(versioned(history_retention_ms=100)).store
    store.put("k", "a", 0)
    store.put("k", "b", 50)
    store.put("alone", "x", 0)
    store.put("other", "y", 150)
    assert store.get("k", 49) is None
    assert store.get("k", 50) == VersionedRecord("b", 50)
    assert store.get("alone", 7) == VersionedRecord("x", 0)
    store.put("k", "c", 200)
    assert store.get("k", 99) is None
    assert store.get("k", 100) == VersionedRecord("b", 50, 200)


def test_versions_that_ended_before_the_history_are_evicted(make: MakeTask) -> None:
    """From memory and from disk, at the latest when the task is idle; deletes go too, and the latest versions stay."""
    task = make(versioned(history_retention_ms=80))
    store = task.store
    for time in range(0, 400, 10):
        store.put("k", str(time), time)
    store.put("gone", None, 200)
    task.commit()
    while task.stores.wants_flush(idle=True):
        task.flush()
    kept = list(range(310, 400, 10))
    assert store.found("k", committed=False) == kept
    assert len(store._view) == len(kept)
    assert len(rows(task)) in {0, len(kept)}
    assert store.get("k", 319) == VersionedRecord("310", 310, 320)
    assert not any(index == "gone" for index, _ in store._view)


def test_jobs_that_ended_unnoticed_are_dropped(on_disk: MakeTask) -> None:
    """Rows of keys that were not touched since the store was opened are looked for on disk: once at once, once when all of them may have ended."""
    task = on_disk(versioned(history_retention_ms=80))
    for number in range(900):
        task.store.put(f"k{number}", "old", 0)
        task.store.put(f"k{number}", None if number % 2 else "new", 10)
    task.commit()
    task.reopen()
    assert len(rows(task)) == 1800
    task.store.put("z", "z", 95)
    task.commit()
    task.flush()
    assert len(rows(task)) == 450 + 1
    assert task.store.get("k2") == VersionedRecord("new", 10)


def test_a_rollback_takes_back_replaced_rows(make: MakeTask) -> None:
    """Values, times of other versions, and stream time; a commit that is under way is rolled back with all later changes."""
    task = make(versioned(history_retention_ms=100))
    store = task.store
    store.put("k", "a", 10)
    task.commit()
    store.put("k", "b", 10)
    store.put("k", "c", 20)
    task.stores.freeze()
    store.put("k", "d", 15)
    store.put("j", "e", 500)
    assert store.get("k", 10) is None
    task.stores.drop()
    assert store.get("k") == VersionedRecord("a", 10)
    assert store.get("k", 17) == VersionedRecord("a", 10)
    assert store.get("j") is None
    assert store.put("k", "f", 5) == 10
    assert task.commit() == {"s": [(b"k", b"f", 5)]}


def test_the_changelog_has_every_version(make: MakeTask) -> None:
    """As often as a key has them, by the time of the last put of each, deletes without a value, with the timestamps of the versions."""
    task = make(versioned())
    store = task.store
    for value, time in (("a", 10), ("b", 20), (None, 15), ("c", 10)):
        store.put("k", value, time)
    assert task.stores.uncommitted_bytes > 0
    assert task.commit() == {"s": [(b"k", b"b", 20), (b"k", None, 15), (b"k", b"c", 10)]}
    task.now = 99
    store.put("j", "d", 30)
    assert task.commit() == {"s": [(b"j", b"d", 30)]}


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_changes_nothing(make: MakeTask, clean: bool) -> None:
    """All versions are there again, from disk or from the changelog, also those that came out of order."""
    task = make(versioned(key=INTEGER, value=json(), history_retention_ms=100))
    for time in (300, 210, 250):
        task.store.put(256, [time], time)
        task.commit()
    task.store.put(256, None, 310)
    task.commit()
    task.reopen(clean=clean)
    found = [task.store.get(256, time) for time in (209, 210, 260, 305, 310)]
    assert [record and record.value for record in found] == [None, [210], [250], [300], None]
    assert task.store.put(256, [1], 209) == PUT_RETURN_CODE_NOT_PUT


def test_a_changelog_of_kafka_streams_has_late_puts(make: MakeTask) -> None:
    """It logs late puts all the same: they are dropped when it is restored."""
    task = make(versioned(history_retention_ms=10))
    task.stores.restore("s", Batch([b"k", b"k", b"k"], [b"a", b"late", None], [100, 89, 90]), 3)
    assert task.store.found("k", committed=False) == [90, 100]
    assert task.store.get("k") == VersionedRecord("a", 100)


def test_memory_has_its_limit(on_disk: MakeTask) -> None:
    """Rows on disk leave memory, key by key, when there is more than the limit; and are found again, with later puts."""
    task = on_disk(versioned(history_retention_ms=1000), shared=SharedResources(resident_bytes=60 * 300))
    for number in range(300):
        for time in (1, 2):
            task.store.put(f"k{number}", f"{number}", time)
        if number % 50 == 49:
            task.commit()
            task.flush()
            assert len(task.store._view) <= 60
    task.store.put("k0", "x", 3)
    assert task.store.get("k0", 2) == VersionedRecord("0", 2, 3)
    assert [task.store.get(f"k{number}", 1) for number in range(3)] == [VersionedRecord(str(number), 1, 2) for number in range(3)]


def test_a_value_in_the_past_does_not_change_with_its_object(make: MakeTask) -> None:
    """A put is written at once where it could be changed in place, and a returned value is a copy."""
    store = make(versioned(value=json())).store
    value = ["a"]
    store.put("k", value, 10)
    value.append("b")
    store.put("k", value, 20)
    found: Any = store.get("k", 10)
    assert found.value == ["a"]
    found.value.append("c")
    assert store.get("k", 10).value == ["a"]


def test_a_closed_store_says_so(make: MakeTask) -> None:
    """Every use raises StoreClosed."""
    task = make(versioned())
    store = task.store
    task.stores.close(clean=True)
    uses: list[Callable[[], Any]] = [lambda: store.get("k"), lambda: store.get("k", 1), lambda: store.put("k", "v", 1)]
    for use in uses:
        with pytest.raises(StoreClosed):
            use()


def test_a_versioned_store_is_described() -> None:
    """By `stores.versioned_key_value`, which wants to know how long history is to be kept."""
    spec = stores.versioned_key_value("s", STRING, STRING, history_retention_ms=5, changelog_configs={"a": "b"})
    assert (spec.kind, spec.history_retention_ms, spec.type, spec.caching) == (StoreKind.VERSIONED, 5, None, False)
    with pytest.raises(TopologyError, match="-1 ms"):
        stores.versioned_key_value("s", history_retention_ms=-1)
