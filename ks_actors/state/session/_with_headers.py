"""Session stores that keep headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, final

from ks_actors.state.core import checked_headers, entry_with, headers_of
from ks_actors.state.session._store import SessionStore
from ks_actors.state.timed import SHIFT

if TYPE_CHECKING:
    from ks_actors.records import Headers, Windowed
    from ks_actors.state.core import Entry

K = TypeVar("K")
V = TypeVar("V")


class AggregationWithHeaders(NamedTuple, Generic[V]):
    """An aggregate of a session and its headers, as in Kafka Streams (KIP-1271)."""

    aggregation: V
    headers: Headers = ()


@final
class SessionStoreWithHeaders(SessionStore[K, AggregationWithHeaders[V]], Generic[K, V]):
    """Aggregates with their headers, by key and session (KIP-1271).

    A delete takes the headers of the current record into the changelog. Entries that operators make
    have no headers.
    """

    def put(self, session: Windowed[K], aggregate: AggregationWithHeaders[V] | None) -> None:
        """Set the aggregate of a session with its headers; None deletes it. See SessionStore."""
        super().put(session, aggregate)
        if aggregate is None or aggregate[0] is None:
            self._note_delete(session)

    def remove(self, session: Windowed[K]) -> None:
        """Delete a session; do nothing if it has expired or does not exist."""
        super().remove(session)
        self._note_delete(session)

    def _note_delete(self, session: Windowed[K]) -> None:
        key, (start, end) = session
        index = key if self._codec.faithful else self._codec.key(key)
        self._note_headers_of_delete((index, end << SHIFT | start))

    def _show(self, entry: Entry) -> Any:
        return AggregationWithHeaders(entry[0], headers_of(entry))

    def _entry(self, aggregate: Any) -> Entry | None:
        if aggregate is None:
            return None
        if not (
            isinstance(aggregate, tuple) and len(aggregate) == len(AggregationWithHeaders._fields)
        ):
            raise TypeError(
                f"store {self.name}: an aggregate is put with its headers, got {aggregate!r}: give "
                "AggregationWithHeaders(aggregation, headers)"
            )
        value, headers = aggregate
        if value is None:
            return None
        return entry_with(value, self._time(), checked_headers(headers, self.name))
