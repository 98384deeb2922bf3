"""All kinds of stores keep the contracts with operators and tasks; mypy checks the signatures here, the tests the names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ks_actors.processors.api import (
    BufferForOperators,
    JoinWindowsForOperators,
    KeyValueForOperators,
    SessionsForOperators,
    VersionsForOperators,
    WindowsForOperators,
)
from ks_actors.serdes import BYTES, STRING
from ks_actors.state import (
    KeyValueStore,
    SessionStore,
    TaskStores,
    TimestampedKeyValueStore,
    VersionedKeyValueStore,
)
from ks_actors.state.core import StoreForTasks
from ks_actors.state.join_window import JoinWindowLookups
from ks_actors.state.window._by_key import WindowsByKey
from ks_actors.state.window._by_start import WindowsByStart
from ks_actors.topology import StoreKind, StoreSpec

if TYPE_CHECKING:

    def _tables(store: TimestampedKeyValueStore[Any, Any]) -> tuple[KeyValueForOperators, StoreForTasks]:
        return store, store

    def _buffers(store: KeyValueStore[Any, Any]) -> tuple[BufferForOperators, StoreForTasks]:
        return store, store

    def _by_key(store: WindowsByKey[Any]) -> tuple[WindowsForOperators, StoreForTasks]:
        return store, store

    def _by_start(store: WindowsByStart[Any]) -> tuple[WindowsForOperators, StoreForTasks]:
        return store, store

    def _joins(store: JoinWindowLookups[Any]) -> tuple[JoinWindowsForOperators, StoreForTasks]:
        return store, store

    def _sessions(store: SessionStore[Any, Any]) -> tuple[SessionsForOperators, StoreForTasks]:
        return store, store

    def _versions(store: VersionedKeyValueStore[Any, Any]) -> tuple[VersionsForOperators, StoreForTasks]:
        return store, store


CASES: list[tuple[StoreSpec, type[Any]]] = [
    (StoreSpec(name="s", kind=StoreKind.TIMESTAMPED_KEY_VALUE, key=STRING, value=BYTES), KeyValueForOperators),
    (StoreSpec(name="s", kind=StoreKind.KEY_VALUE, key=STRING, value=BYTES), BufferForOperators),
    (StoreSpec(name="s", kind=StoreKind.TIMESTAMPED_WINDOW, key=STRING, value=BYTES, retention_ms=10, window_size_ms=1), WindowsForOperators),
    (
        StoreSpec(name="s", kind=StoreKind.TIMESTAMPED_WINDOW, key=STRING, value=BYTES, retention_ms=10, window_size_ms=1, advance_ms=1),
        WindowsForOperators,
    ),
    (
        StoreSpec(name="s", kind=StoreKind.WINDOW, key=STRING, value=BYTES, retention_ms=10, window_size_ms=1, retain_duplicates=True),
        JoinWindowsForOperators,
    ),
    (StoreSpec(name="s", kind=StoreKind.SESSION, key=STRING, value=BYTES, retention_ms=10), SessionsForOperators),
    (StoreSpec(name="s", kind=StoreKind.VERSIONED, key=STRING, value=BYTES, history_retention_ms=10), VersionsForOperators),
]


def members(contract: type[Any]) -> set[str]:
    """Return the names that a contract has, with those of the contracts that it extends."""
    parts = [part for part in contract.__mro__ if part.__module__.startswith("ks_actors")]
    return {name for part in parts for name in (*vars(part), *part.__annotations__) if not name.startswith("_")}


@pytest.mark.parametrize(("spec", "contract"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_each_kind_of_store_has_all_that_operators_and_tasks_may_ask(spec: StoreSpec, contract: type[Any]) -> None:
    """An open store has each member of the contract with its operators, and of that with its task."""
    stores = TaskStores("0_0", [spec], directory=None, shared=None, record_time=lambda: 0, expired=lambda _: None)
    stores.open()
    store = stores.store("s")
    assert {name for name in members(contract) | members(StoreForTasks) if not hasattr(store, name)} == set()
    stores.close(clean=True)
