"""Partitions that the topology reads but this instance does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from ks_actors.log import TellsGroups
from ks_actors.records import TopicPartition
from ks_actors.runtime.fetching import FROM_BEGIN, StartPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ks_actors.log import IsolationLevel, Log
    from ks_actors.task import AppTopics

_FETCH_MS = 100
_NAMES = 10
_NONE: Mapping[TopicPartition, int] = {}


class ReadElsewhere(NamedTuple):
    """Partitions of other members, and partitions of no member, with their uncommitted offsets.

    `assigned` is False while the group reassigns tasks.
    """

    others: Mapping[TopicPartition, int] = _NONE
    unread: Mapping[TopicPartition, int] = _NONE
    assigned: bool = True

    @property
    def behind(self) -> int:
        """The number of uncommitted offsets.

        The number is at least 1 for each unassigned partition, and 1 more while the group reassigns
        tasks.
        """
        return (
            sum(self.others.values())
            + sum(max(lag, 1) for lag in self.unread.values())
            + (not self.assigned)
        )

    def __str__(self) -> str:
        parts = [] if self.assigned else ["the group is assigning its tasks"]
        if self.unread:
            parts.append(f"no member of the group reads {_named(self.unread)}")
        if self.others:
            parts.append(f"other members of the group have not committed {_named(self.others)}")
        return "; ".join(parts)


@final
class Coverage:
    """Compare the topology's partitions with those of the group's members.

    `own` are the partitions of this instance. If the log cannot describe groups, all partitions
    count as read.
    """

    def __init__(
        self,
        log: Log,
        topics: AppTopics,
        wall_time: Callable[[], int],
        isolation: IsolationLevel,
        own: Callable[[], Collection[TopicPartition]],
    ) -> None:
        self._log = log
        self._topics = topics
        self._isolation = isolation
        self._own = own
        self._start = StartPolicy(log, topics, wall_time)

    def missing(self) -> frozenset[TopicPartition]:
        """Return the partitions that the topology reads but this instance does not.

        The known sizes of topics determine these partitions.
        """
        sizes = {topic: self._topics.partitions(topic) or 0 for topic in self._topics.source_topics}
        return _partitions(sizes).difference(self._own())

    async def unread(self) -> Mapping[TopicPartition, int] | None:
        """Return the non-empty partitions of no member, with their offsets.

        Return None while the assignment is not known. Raises LogError.
        """
        missing = self.missing()
        if not missing or not isinstance(self._log, TellsGroups):
            return {}
        given = await self._given(self._log)
        if given is None:
            return None
        nobodys = missing - given - frozenset(self._own())
        return (
            {
                partition: lag
                for partition, lag in (await self.lags(self._log, nobodys, each=True)).items()
                if lag
            }
            if nobodys
            else {}
        )

    async def read_elsewhere(self) -> ReadElsewhere:
        """Ask the log for all partitions, their owners, and their uncommitted offsets.

        Raises LogError.
        """
        known = frozenset(self._topics.source_topics)
        patterns = any(part.source_patterns for part in self._topics.topology.subtopologies())
        described = await self._log.describe_topics(
            None if patterns else sorted(known), configs=False
        )
        topics = known | self._topics.matching(described).keys()
        missing = _partitions(
            {topic: described[topic].partitions for topic in topics if topic in described}
        ).difference(self._own())
        if not missing or not isinstance(self._log, TellsGroups):
            return ReadElsewhere()
        given = await self._given(self._log)
        if given is None:
            return ReadElsewhere(assigned=False)
        lags = await self.lags(self._log, missing, each=False)
        # Do not wait for an empty topic that a pattern has not matched yet.
        unread = {
            partition: lags[partition]
            for partition in sorted(missing - given)
            if lags[partition] or partition.topic in known
        }
        others = {
            partition: lags[partition] for partition in sorted(missing & given) if lags[partition]
        }
        return ReadElsewhere(others, unread)

    async def _given(self, groups: TellsGroups) -> frozenset[TopicPartition] | None:
        given: frozenset[TopicPartition] = frozenset()
        for member in await groups.group_members(self._topics.config.application_id):
            if member.partitions is None:
                return None
            given |= member.partitions
        return given

    async def lags(
        self,
        groups: TellsGroups,
        partitions: Iterable[TopicPartition],
        ends: Mapping[TopicPartition, int] | None = None,
        *,
        each: bool,
    ) -> dict[TopicPartition, int]:
        """Return the number of offsets after the committed offsets, 0 where no record follows.

        Count up to `ends`, or to the present ends. Unless `each` partition matters, stop as soon as
        a partition is known to have a record. Raises LogError.
        """
        wanted = sorted(partitions)
        committed = await groups.group_offsets(self._topics.config.application_id)
        begins = await self._log.begin_offsets(wanted)
        if ends is None:
            ends = await self._log.end_offsets(wanted, self._isolation)
        starts = await self._start.offsets(
            [
                one
                for one in wanted
                if one not in committed and self._start.of(one.topic) not in FROM_BEGIN
            ]
        )
        positions = {
            one: max(committed[one].offset, begins[one])
            if one in committed
            else starts.get(one, begins[one])
            for one in wanted
        }
        lags = {one: max(0, ends[one] - at) for one, at in positions.items()}
        empty = await self._without_records(
            {one: at for one, at in positions.items() if lags[one]}, ends, each=each
        )
        return {one: 0 if one in empty else lag for one, lag in lags.items()}

    async def _without_records(
        self,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        *,
        each: bool,
    ) -> set[TopicPartition]:
        """Return the partitions with no records after the positions.

        After these positions, such partitions have only transaction markers and aborted records.
        """
        left, empty = dict(positions), set[TopicPartition]()
        if not left:
            return empty
        fetcher = self._log.fetcher(
            client_id=f"{self._topics.config.client_id}-ends", isolation=self._isolation
        )
        fetcher.assign(left)
        try:
            while left:
                before = dict(left)
                # Only a fetch tells records from transaction markers and aborted records.
                full = {
                    one.partition
                    for one in await fetcher.fetch(max_wait_ms=_FETCH_MS, max_records=1)
                    if len(one.batch)
                }
                if full and not each:
                    break
                left = {one: fetcher.position(one) for one in left if one not in full}
                empty.update(one for one, position in left.items() if position >= ends[one])
                left = {one: position for one, position in left.items() if one not in empty}
                if left == before:
                    # Nothing arrives: the broker is slow or unavailable. Do not take that for an
                    # empty partition.
                    break
                fetcher.assign(left)
        finally:
            await fetcher.close()
        return empty


def _partitions(sizes: Mapping[str, int]) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic, number) for topic, size in sizes.items() for number in range(size)
    )


def _named(lags: Mapping[TopicPartition, int]) -> str:
    named = ", ".join(
        f"{partition} ({lag} offsets)" for partition, lag in list(lags.items())[:_NAMES]
    )
    return f"{named} and {len(lags) - _NAMES} more partitions" if len(lags) > _NAMES else named
