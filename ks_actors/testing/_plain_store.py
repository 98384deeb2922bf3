"""A store with timestamps or headers, seen as a store of values alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final
from weakref import WeakSet

from ks_actors.state import (
    AggregationWithHeaders,
    StoreIterator,
    ValueAndTimestamp,
    ValueTimestampHeaders,
)
from ks_actors.topology import HEADED, StoreKind

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

UNKNOWN: Final = -1
"""The timestamp (ms) of values that are put without one, as in Kafka Streams."""

_FULL: Final[dict[StoreKind, Callable[[Any], Any]]] = {
    StoreKind.TIMESTAMPED_KEY_VALUE: lambda value: ValueAndTimestamp(value, UNKNOWN),
    StoreKind.TIMESTAMPED_WINDOW: lambda value: ValueAndTimestamp(value, UNKNOWN),
    StoreKind.SESSION_WITH_HEADERS: AggregationWithHeaders,
    **{
        kind: lambda value: ValueTimestampHeaders(value, UNKNOWN)
        for kind in HEADED - {StoreKind.SESSION_WITH_HEADERS}
    },
}


def plain_store(store: Any, kind: StoreKind) -> Any:
    """Return a store of values alone: the store itself, if it keeps nothing else."""
    return _PlainStore(store, kind) if kind in _FULL else store


@final
class _PlainStore:
    def __init__(self, store: Any, kind: StoreKind) -> None:
        self._store = store
        self._full = _FULL[kind]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            return _plain(found(*arguments, **named))

        return call

    def __getitem__(self, key: Any) -> Any:
        return self._store[key]

    def put(self, key: Any, value: Any, *start: int) -> None:
        """Set a value; None deletes it."""
        self._store.put(key, self._whole(value), *start)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set a value if there is none; return the previous value."""
        return _plain(self._store.put_if_absent(key, self._whole(value)))

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Set values; None deletes the key."""
        self._store.put_all([(key, self._whole(value)) for key, value in entries])

    def _whole(self, value: Any) -> Any:
        return None if value is None else self._full(value)


def _plain(found: Any) -> Any:
    if isinstance(found, ValueAndTimestamp | ValueTimestampHeaders):
        return found.value
    if isinstance(found, AggregationWithHeaders):
        return found.aggregation
    return StoreIterator(_rows(found), WeakSet()) if isinstance(found, StoreIterator) else found


def _rows(found: StoreIterator[Any]) -> Generator[Any, None, None]:
    with found:
        for key, value in found:
            yield key, _plain(value)
