"""Records of a stream as of the time of other records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from ks_actors.processors.api import Bound
from ks_actors.processors.joins._buffered_join import TIME_ALONE
from ks_actors.processors.stateless import Inline
from ks_actors.processors.tables import Reader

if TYPE_CHECKING:
    from ks_actors.processors.api import NodeContext
    from ks_actors.records import Headers


@final
@dataclass(frozen=True, kw_only=True)
class KeepRecords(Inline):
    """Store a stream's records by key and timestamp; if both are equal, the last record counts.

    Records without key or value are dropped. Each other record first advances the stream time of a
    join downstream. So records that have waited long enough are joined before the store forgets the
    rows that they need.
    """

    store: str

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        put, forward = context.store(self.store).put_entry, context.forward

        def process(key: Any, value: Any, timestamp: int, _: Headers) -> None:
            if key is None or value is None:
                context.dropped()
            else:
                forward(None, TIME_ALONE, timestamp, ())
                put(key, timestamp, (value, timestamp))

        return Bound(process)


@final
@dataclass(frozen=True, kw_only=True)
class RecordsAsOf:
    """The latest stored record of a key at or before a time, and at most `tolerance_ms` before."""

    store: str
    tolerance_ms: int

    @property
    def stores(self) -> tuple[str, ...]:
        """The store."""
        return (self.store,)

    @property
    def record_context(self) -> bool:
        """False: rows are read as they are."""
        return False

    def bind(self, context: NodeContext) -> Reader:
        """Make the reader of one node."""
        fetch, tolerance = context.store(self.store).fetch_entries, self.tolerance_ms

        def as_of(key: Any, time: int) -> tuple[Any, int] | None:
            found = fetch(key, max(0, time - tolerance), time)
            return found[-1][1] if found else None

        def get(key: Any) -> tuple[Any, int] | None:
            return as_of(key, context.stream_time())

        return Reader(get, as_of=as_of)
