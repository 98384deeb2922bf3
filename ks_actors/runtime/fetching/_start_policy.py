"""Start offsets of partitions without a committed offset."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from ks_actors.config import milliseconds
from ks_actors.log import IsolationLevel

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ks_actors.log import Log
    from ks_actors.records import TopicPartition
    from ks_actors.task import AppTopics
    from ks_actors.topology import OffsetReset

# The policies that lead to the first record.
FROM_BEGIN: Final = ("earliest", "none")


@final
class StartPolicy:
    """Look up start offsets, by the `offset_reset` of a topic's source, or else of the app.

    Repartition topics are read from the first record, because the app itself has written all
    records there.
    """

    def __init__(self, log: Log, topics: AppTopics, wall_time: Callable[[], int]) -> None:
        self._log = log
        self._topics = topics
        self._wall_time = wall_time
        self._own: frozenset[str] = frozenset(map(topics.topic, topics.topology.internal_topics))

    def of(self, topic: str) -> OffsetReset:
        """Return a topic's policy. A pattern may not have matched the topic yet."""
        if topic in self._own:
            return "earliest"
        nodes = self._topics.matching([topic])
        node = nodes[topic] if topic in nodes else self._topics.source_of(topic)
        found = node.offset_reset
        return self._topics.config.auto_offset_reset if found is None else found

    async def offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the start offsets of partitions. With policy `none`, these are the first offsets.

        A duration leads to the first record of at most that age (KIP-1106), or to the end if there
        is no such record. Raises LogError.
        """
        policies = {partition: self.of(partition.topic) for partition in partitions}
        ends = [one for one, policy in policies.items() if policy == "latest"]
        times = {
            one: max(0, milliseconds(policy, self._wall_time()))
            for one, policy in policies.items()
            if isinstance(policy, timedelta)
        }
        begins = [one for one in policies if one not in times and policies[one] != "latest"]
        found = dict(await self._log.begin_offsets(begins)) if begins else {}
        if times:
            found |= await self._log.offsets_for_times(times)
        if ends or times:
            # Records of open transactions are read when they have been committed.
            stable = await self._log.end_offsets([*ends, *times], IsolationLevel.READ_COMMITTED)
            found |= {one: min(offset, found.get(one, offset)) for one, offset in stable.items()}
        return found


def words(policy: OffsetReset) -> str:
    """Return the place in a log that a policy other than `none` leads to, in words."""
    if isinstance(policy, timedelta):
        return f"first record of the last {policy}"
    return f"{policy} record"
