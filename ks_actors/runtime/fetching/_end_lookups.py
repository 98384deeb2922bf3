"""Lookups of end offsets, for tasks that seem to be idle."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from ks_actors.log import IsolationLevel
from ks_actors.runtime.messages import AskEnds, FetchFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Iterable, Mapping

    from actors import Context
    from ks_actors.log import Log
    from ks_actors.records import TopicPartition

ENDS: Final = -1
"""Instead of an epoch: the failure was not a fetch."""


class OnTheirWay(Protocol):
    """The records that the app's other tasks have on their way to a task."""

    def levels(self, topics: Collection[str], /) -> list[frozenset[str]]:
        """Return the topics of the tasks upstream of these tasks, the farthest upstream first."""
        ...

    async def passed(self, levels: Iterable[frozenset[str]], /) -> None:
        """Wait until all records that these topics have now are committed. Raises LogError."""
        ...


@final
class EndLookups:
    """Look up the ends of partitions together; later questions wait for the next lookup.

    Records of open transactions are on their way, so the ends include these records.
    """

    def __init__(self, log: Log, upstream: OnTheirWay) -> None:
        self._log = log
        self._upstream = upstream
        # A newer question about the same partitions replaces an older question, which waits for
        # fewer records.
        self._waiting: dict[tuple[TopicPartition, ...], object] = {}
        self._wanted: dict[TopicPartition, None] = {}
        self._under_way: dict[TopicPartition, None] = {}

    def ask(self, partitions: tuple[TopicPartition, ...], ctx: Context[Any]) -> None:
        """Add a task's partitions to the next lookup, once the records upstream have come.

        Then the actor of the context gets an AskEnds without partitions.
        """
        if levels := self._upstream.levels({one.topic for one in partitions}):
            token = self._waiting[partitions] = object()
            coming = self._ask_behind(levels, partitions, token)
            ctx.pipe(coming, lambda _: AskEnds(()), partial(FetchFailed, epoch=ENDS))
        else:
            self._wanted.update(dict.fromkeys(partitions))

    async def _ask_behind(
        self, levels: list[frozenset[str]], partitions: tuple[TopicPartition, ...], token: object
    ) -> None:
        await self._upstream.passed(levels)
        if self._waiting.get(partitions) is token:
            del self._waiting[partitions]
            self._wanted.update(dict.fromkeys(partitions))

    def begin(
        self, assigned: Collection[TopicPartition]
    ) -> Awaitable[Mapping[TopicPartition, int]] | None:
        """Begin a lookup of the wanted partitions that are assigned; None without any.

        The others stay wanted: a new task may ask a moment before its partitions are assigned.
        """
        if self._under_way:
            return None
        self._under_way = {one: None for one in self._wanted if one in assigned}
        if not self._under_way:
            return None
        self._wanted = {one: None for one in self._wanted if one not in assigned}
        return self._log.end_offsets(tuple(self._under_way), IsolationLevel.READ_UNCOMMITTED)

    def end(self, *, failed: bool) -> None:
        """End the lookup; after a failure, the next lookup has its partitions again."""
        if failed:
            self._wanted = self._under_way | self._wanted
        self._under_way = {}
