"""Stores above an engine of the user's own: what a close and a crash leave, and what an engine may not do."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ks_actors import ConfigError, Materialized, StateError, StateFull, StoreEngineContext, StreamsConfig, TopologyError, stores
from ks_actors.state import TaskStores
from tests.ks_actors.state.helpers import Task, key_value, window
from tests.ks_actors.state.sqlite_engine import SqliteEngine


class Forgetful(SqliteEngine):
    """Claims nothing of what it keeps, and begins empty."""

    persistent = False

    def __init__(self, context: StoreEngineContext) -> None:
        super().__init__(context)
        self._database.execute("DELETE FROM rows")


def filled(path: Path, engine: Callable[[StoreEngineContext], Any] = SqliteEngine) -> Task:
    task = Task([key_value(), window("w")], path, "engine")
    task.stores.close(clean=False)
    task.specs = [key_value(type=engine), window("w", type=engine)]
    task.open()
    for name in "abc":
        task.store.put(name, 1)
        task["w"].put(name, "x", 10)
    task.commit()
    return task


def test_a_clean_close_leaves_nothing_to_restore(tmp_path: Path) -> None:
    """Each store has its rows and its offset in an engine of its own, in a directory of its own."""
    task = filled(tmp_path)
    assert task.reopen() == 0
    assert dict(task.store.all()) == {"a": 1, "b": 1, "c": 1}
    assert task["w"].fetch("a", 10) == "x"
    assert {each.name for each in (tmp_path / "0_3" / "engines").iterdir()} == {"s", "w"}
    assert not (tmp_path / "0_3" / "rocksdb").exists()
    assert task.stores.stored_offset_sum == 6
    task.close()


def test_a_crash_costs_the_records_that_the_engine_lacks(tmp_path: Path) -> None:
    """The engine has the rows of the last flush and their offset; uncommitted puts never reach it."""
    task = filled(tmp_path)
    task.flush()
    task.store.put("d", 2)
    task.commit()
    task.store.put("e", 3)
    assert task.reopen(clean=False) == 1
    assert dict(task.store.all()) == {"a": 1, "b": 1, "c": 1, "d": 2}
    task.close()


def test_an_engine_that_is_not_persistent_is_restored_whole(tmp_path: Path) -> None:
    """Its rows and offsets are forgotten, also in the progress that the group is told."""
    task = filled(tmp_path, Forgetful)
    task.flush()
    assert task.reopen() == 6
    assert dict(task.store.all()) == {"a": 1, "b": 1, "c": 1}
    task.stores.close(clean=True)
    assert task.stores.stored_offset_sum is None


def test_state_that_is_given_up_is_deleted_and_restored(tmp_path: Path) -> None:
    """The directories of the engines are deleted, so that they begin empty."""
    task = filled(tmp_path)
    task.stores.close(clean=True)
    task.stores.give_up("a test")
    assert not (tmp_path / "0_3" / "engines").exists()
    task.open()
    assert task.restore() == 6
    task.close()


def test_state_without_a_changelog_is_written_at_each_commit(tmp_path: Path) -> None:
    """A crash after a commit loses nothing of it, and the only copy is never given up."""
    task = Task([key_value(logging=False)], tmp_path, "engine")
    task.store.put("a", 1)
    token = task.stores.freeze()
    task.stores.persist_unlogged(token)
    task.stores.publish(token, {})
    task.reopen(clean=False)
    assert task.store.get("a") == 1
    task.stores.close(clean=False)
    with pytest.raises(StateError, match="has no changelog"):
        task.stores.give_up("a test")


class Broken(SqliteEngine):
    """Fails as it is told to."""

    error: Exception | None = None
    value: Any = None

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error

    def get(self, key: bytes) -> bytes | None:
        self._fail()
        return self.value if self.value is not None and key[0] else super().get(key)

    def write(self, rows: Any, ranges: Any) -> None:
        self._fail()
        super().write(rows, ranges)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (sqlite3.OperationalError("database is locked"), StateError),
        (OSError(errno.ENOSPC, "No space left on device"), StateFull),
        (KeyError("row"), StateError),
    ],
)
def test_an_error_of_an_engine_names_the_store_and_the_task(error: Exception, raised: type[Exception], tmp_path: Path) -> None:
    """A full disk is told from other errors; the rows that were not written stay in memory for the next try."""
    task = filled(tmp_path, Broken)
    engine: Any = task.stores._supplied.by_store["s"]._open
    engine.error = error
    with pytest.raises(raised, match=r"store s of task 0_3") as caught:
        task.flush()
    assert caught.value.__cause__ is error
    engine.error = None
    task.flush()
    assert task.reopen(clean=False) == 0
    task.close()


def test_an_engine_that_returns_something_else_than_bytes_is_refused(tmp_path: Path) -> None:
    """The error names the class, and the value."""
    task = filled(tmp_path, Broken)
    task.reopen()
    engine: Any = task.stores._supplied.by_store["s"]._open
    engine.value = "text"
    with pytest.raises(StateError, match=r"Broken returned 'text' as a value: return bytes or None"):
        task.store.get("z")
    task.close()


def test_a_supplier_that_makes_no_engine_is_refused_and_leaves_nothing_open(tmp_path: Path) -> None:
    """The stores can be opened again once the supplier is right."""
    made: Any = TaskStores(
        "0_3", [key_value(), window("w", type=lambda _: print)], directory=tmp_path / "0_3", shared=None, record_time=lambda: 0, expired=print
    )
    with pytest.raises(StateError, match=r"store w of task 0_3: its store_type made .*, which is not a StoreEngine"):
        made.open()
    again = Task([key_value(), window("w")], tmp_path, "engine")
    again.close()


@pytest.mark.parametrize("wrong", ["disk", 5, lambda: None, object()])
def test_a_wrong_store_type_is_refused_at_once(wrong: Any) -> None:
    """By the DSL, by the stores of processors, and by the setting."""
    with pytest.raises(TopologyError, match=r"store_type of Materialized"):
        Materialized("s", store_type=wrong)
    with pytest.raises(TopologyError, match=r"type of store s"):
        stores.key_value("s", type=wrong)
    with pytest.raises(ConfigError, match=r"default_dsl_store"):
        StreamsConfig.of({"application_id": "a", "default_dsl_store": wrong})


def test_the_setting_takes_the_name_of_an_engine() -> None:
    """A properties file has nothing but text."""
    for name in ("tests.ks_actors.state.sqlite_engine:SqliteEngine", "tests.ks_actors.state.sqlite_engine.SqliteEngine"):
        assert StreamsConfig.of({"application_id": "a", "default_dsl_store": name}).default_dsl_store is SqliteEngine
