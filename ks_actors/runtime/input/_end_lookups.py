"""Lookups of end offsets, for tasks that seem to be idle."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Iterable, Mapping

    from ks_actors.log import IsolationLevel, Log
    from ks_actors.records import TopicPartition


@final
class EndLookups:
    """Look up the ends of partitions together: one lookup at a time, and the next has the rest."""

    def __init__(self, log: Log, isolation: IsolationLevel) -> None:
        self._log = log
        self._isolation = isolation
        self._wanted: dict[TopicPartition, None] = {}
        self._under_way: dict[TopicPartition, None] = {}

    def want(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the next lookup."""
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
        return self._log.end_offsets(tuple(self._under_way), self._isolation)

    def end(self, *, failed: bool) -> None:
        """End the lookup; after a failure the next one has its partitions again."""
        if failed:
            self._wanted = self._under_way | self._wanted
        self._under_way = {}
