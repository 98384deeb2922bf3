"""The start offsets of assigned partitions, looked up in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any, cast

import pytest

from actors.testing import TestKit, run
from ks_actors import UnknownTopicOrPartition
from ks_actors.log import Log, Membership, NewTopic, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.records import TaskId
from ks_actors.runtime.fetching._start_policy import StartPolicy
from ks_actors.runtime.membership._group_view import GroupView
from ks_actors.runtime.membership._start_positions import begin_positions

THERE, LACKING = TopicPartition("in", 0), TopicPartition("in", 5)
LOOK_S = 1.0


class Group:
    """A group that has assigned a partition which its topic lacks."""

    stateful = frozenset[int]()

    async def refresh_sizes(self, _: object, log: Log) -> None: ...

    def was_added(self, _: TopicPartition) -> bool:
        return False

    def matched(self, _: Collection[TopicPartition]) -> frozenset[str]:
        return frozenset()


class Member:
    """A member of it without committed offsets."""

    async def committed(self, _: object) -> dict[TopicPartition, Any]:
        return {}


class Policy:
    """The start at a log's beginning, whose look-up takes a while, as that of a partition which no broker knows."""

    def of(self, _: str) -> str:
        return "earliest"

    async def offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if LACKING not in partitions:
            return dict.fromkeys(partitions, 0)
        await asyncio.sleep(LOOK_S)
        raise UnknownTopicOrPartition(f"{LACKING} does not exist")


async def positions(*partitions: TopicPartition) -> object:
    """Look up the start offsets of partitions."""
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic(THERE.topic, 1)])
        tasks = {TaskId(0, one.partition): (one,) for one in partitions}
        group, member, policy = cast("GroupView", Group()), cast("Membership", Member()), cast("StartPolicy", Policy())
        return await begin_positions(tasks, (), group, member, log, policy)


def test_a_partition_that_its_topic_lacks_is_told_in_seconds() -> None:
    """However long each look for it takes: the last one begins after 5 s."""

    async def told(_: TestKit) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(UnknownTopicOrPartition, match=f"{LACKING} does not exist"):
            await positions(THERE, LACKING)
        assert 5 <= loop.time() - began <= 5 + 2 * LOOK_S

    run(told)
