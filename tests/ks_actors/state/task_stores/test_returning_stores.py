"""Stores whose changelogs went on without them: they left the topology, or had no changelog, and come back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ks_actors.state import SharedResources, stored_offsets
from ks_actors.state.disk import unlogged_stores
from ks_actors.topology import stores
from ks_actors.topology._stores import StoreSpec
from tests.ks_actors.state.custom.test_custom import OnDisk, Transactional
from tests.ks_actors.state.helpers import Task, key_value
from tests.ks_actors.state.sqlite_engine import SqliteEngine


def put(task: Task, key: str, value: str | None) -> None:
    """Put into the store `s`, of whatever kind."""
    store: Any = task.store
    if isinstance(store, OnDisk):
        store.put(key.encode(), None if value is None else value.encode())
    else:
        store.put(key, None if value is None else int(value))


def content(task: Task) -> dict[str, str]:
    store: Any = task.store
    if isinstance(store, OnDisk):
        return {key.decode(): value.decode() for key, value in store.data.items()}
    return {key: str(value) for key, value in store.all()}


def in_database(*, logging: bool = True) -> StoreSpec:
    return key_value(type="rocksdb", logging=logging)


def in_engine(*, logging: bool = True) -> StoreSpec:
    return key_value(type=SqliteEngine, logging=logging)


def custom(*, logging: bool = True) -> StoreSpec:
    return stores.custom("s", OnDisk, logging=logging)


def with_offsets(*, logging: bool = True) -> StoreSpec:
    return stores.custom("s", Transactional, logging=logging)


def in_memory(*, logging: bool = True) -> StoreSpec:
    return key_value(type="in_memory", logging=logging)


OTHER = key_value("t", type="rocksdb")
KINDS = [in_database, in_engine, custom, with_offsets]


def begun(tmp_path: Path, spec: StoreSpec) -> Task:
    """Return a task with two rows in `s`, one of which is deleted in the changelog later on."""
    task = Task([key_value("t")], tmp_path)
    change(task, spec, OTHER)
    task.logs["s"] = []
    for key, value in (("gone", "1"), ("here", "2")):
        put(task, key, value)
        task.commit()
    return task


def change(task: Task, *specs: StoreSpec) -> None:
    task.stores.close(clean=True)
    task.specs = list(specs)
    task.open()


@pytest.mark.parametrize("away", [[OTHER], [in_memory(), OTHER]])
@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_comes_back_is_restored_from_the_beginning(
    kind: Callable[..., StoreSpec], away: list[StoreSpec], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows that were deleted in its changelog meanwhile stay away, though compaction has dropped the deletions."""
    task = begun(tmp_path, kind())
    change(task, *away)
    assert task.directory is not None
    assert "s" not in stored_offsets(task.directory, SharedResources())
    task.logs["s"] = [(b"here", task.logs["s"][1][1], 0)]
    change(task, kind(), OTHER)
    assert content(task) == {}
    assert task.stores.next_offset("s") is None
    assert caplog.text.count("local state of store s of task 0_3") == 1
    assert task.restore() == 1
    assert content(task) == {"here": "2"}
    task.commit()
    assert task.reopen() == 0
    assert content(task) == {"here": "2"}
    task.close()


@pytest.mark.parametrize("kind", [in_database, in_engine, custom])
def test_rows_without_changelog_are_gone_when_the_store_has_one_again(kind: Callable[..., StoreSpec], tmp_path: Path) -> None:
    """They are in no changelog, so a standby or another instance would not have them."""
    task = begun(tmp_path, kind())
    change(task, kind(logging=False), OTHER)
    assert content(task) == {"gone": "1", "here": "2"}
    if isinstance(task.store, OnDisk):
        task.store.data = {b"unlogged": b"3"}
    else:
        put(task, "unlogged", "3")
    log, task.logs = task.logs, {"t": []}
    token = task.stores.freeze()
    task.stores.persist_unlogged(token)
    task.stores.publish(token, {})
    task.logs = log
    change(task, kind(logging=False), OTHER)
    assert content(task)["unlogged"] == "3"
    change(task, kind(), OTHER)
    assert content(task) == {}
    assert task.restore() == 2
    assert content(task) == {"gone": "1", "here": "2"}
    task.close()


def test_a_store_without_changelog_comes_back_as_it_was(tmp_path: Path) -> None:
    """Its rows are the only copy."""
    task = begun(tmp_path, in_database())
    change(task, in_database(logging=False), OTHER)
    put(task, "unlogged", "3")
    change(task, OTHER)
    change(task, in_database(logging=False), OTHER)
    assert content(task) == {"gone": "1", "here": "2"}
    task.close()


def test_a_store_of_an_earlier_layout_that_leaves_is_no_only_copy(tmp_path: Path) -> None:
    """The list of stores did not say then that it has a changelog; its offset did, which goes."""
    task = begun(tmp_path, in_database())
    assert task.directory is not None
    engine = task.stores._engine
    assert engine is not None
    known = msgspec.json.decode(engine.get(b"\0stores") or b"")
    known["stores"]["s"]["changelog"] = ""
    engine.write([(b"\0stores", msgspec.json.encode(known))])
    change(task, OTHER)
    task.stores.close(clean=True)
    assert unlogged_stores("0_3", task.directory, SharedResources()) == []
    change(task, in_database(), OTHER)
    assert content(task) == {}
    task.close()
