"""Stream time of a join of two streams, which all its nodes in one task share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, final

from ks_actors.processors.api import keep

if TYPE_CHECKING:
    from ks_actors.processors.api import NodeContext, Origin

_NONE: Final = -2


@final
class JoinTime:
    """Stream time (ms) of both sides, and the time since which records may be pending.

    Both are committed with the offsets. `origins` has the origins of pending records, by place and
    number at that place. Origins are only in memory, so a restarted task knows none.
    """

    __slots__ = ("origins", "pending_since", "time")

    def __init__(self, time: int, pending_since: int | None) -> None:
        self.time: int = time
        self.origins: dict[tuple[Any, int], Origin] = {}
        self.pending_since: int | None = pending_since

    @classmethod
    def of(cls, context: NodeContext, name: str) -> Self:
        """Return the time of the join `name`; the first of its nodes takes the committed time."""
        known: Any = context.progress.get(name, -1)
        if isinstance(known, cls):
            return known
        since = f"{name}@pending"
        # At first the store may have pending records. (Kafka Streams searches the store only for
        # records that have come since the start.)
        unknown = _NONE if context.kafka_streams_faults else -1
        found = int(context.progress.get(since, unknown))
        shared = cls(int(known), None if found == _NONE else found)
        keep(context, name, shared)
        return shared

    def __index__(self) -> int:
        """Return stream time. Every commit reads the time this way."""
        return self.time

    def keep_pending(self, context: NodeContext, name: str) -> None:
        """Register the time since which records may be pending, so that each commit reads it."""
        keep(context, f"{name}@pending", _Since(self))


@final
class _Since:
    """The time since which records may be pending, as a number."""

    __slots__ = ("_shared",)

    def __init__(self, shared: JoinTime) -> None:
        self._shared = shared

    def __index__(self) -> int:
        since = self._shared.pending_since
        return _NONE if since is None else since
