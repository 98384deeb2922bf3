"""Groups as an operator sees them: the same on every log."""

from __future__ import annotations

import uuid

import pytest

from ks_actors import IllegalGeneration, UnknownTopicOrPartition
from ks_actors.log import Assigned, Log, ManagesGroups, Membership, NewMember, OffsetAndMetadata, TopicPartition
from tests.ks_actors.log.helpers import by_turns, new_topic
from tests.waiting import soon, until


async def joined(log: Log, group: str, topic: str) -> Membership:
    """Return a member that has its partitions."""
    member = NewMember(client_id="worker", topics=[topic], user_data=b"", assignor=by_turns, session_timeout_ms=10_000, rebalance_timeout_ms=10_000)
    membership = await log.join(group, member)
    assert isinstance(await soon(membership.event()), Assigned)
    return membership


async def test_offsets_of_a_group_without_members_are_anybodys_to_set(log: Log) -> None:
    """All committed offsets are listed, and set ones replace them; an unknown group has none."""
    assert isinstance(log, ManagesGroups)
    one, two = await new_topic(log, 2)
    group = f"group-{uuid.uuid4().hex}"
    assert await log.group_offsets(group) == {}
    assert await log.group_members(group) == []
    assert group not in await log.group_ids()
    membership = await joined(log, group, one.topic)
    await membership.commit({one: OffsetAndMetadata(3, "text"), two: OffsetAndMetadata(4)})
    await membership.leave()
    assert await log.group_offsets(group) == {one: OffsetAndMetadata(3, "text"), two: OffsetAndMetadata(4)}
    await log.set_group_offsets(group, {one: OffsetAndMetadata(0)})
    assert await log.group_offsets(group) == {one: OffsetAndMetadata(0), two: OffsetAndMetadata(4)}
    assert group in await log.group_ids()


async def test_offsets_of_a_group_with_members_are_theirs(log: Log) -> None:
    """Nobody else sets them until the members are removed; a member that is gone already may be removed once more."""
    assert isinstance(log, ManagesGroups)
    (one,) = await new_topic(log)
    group = f"group-{uuid.uuid4().hex}"
    membership = await joined(log, group, one.topic)
    members = await log.group_members(group)
    assert [(member.client_id, member.partitions) for member in members] == [("worker", frozenset({one}))]
    with pytest.raises(IllegalGeneration):
        await log.set_group_offsets(group, {one: OffsetAndMetadata(1)})
    assert await log.group_offsets(group) == {}
    await log.remove_members(group, members)
    await log.remove_members(group, members)
    assert await log.group_members(group) == []
    await log.set_group_offsets(group, {one: OffsetAndMetadata(1)})
    await membership.close()


async def test_offsets_of_topics_that_are_not_there_cannot_be_set(log: Log) -> None:
    """The error says so."""
    assert isinstance(log, ManagesGroups)
    with pytest.raises(UnknownTopicOrPartition):
        await log.set_group_offsets(f"group-{uuid.uuid4().hex}", {TopicPartition(f"none-{uuid.uuid4().hex}", 0): OffsetAndMetadata(1)})


async def test_offsets_of_a_deleted_topic_go_with_it(log: Log) -> None:
    """A topic of the same name begins without them; on Kafka the coordinator hears of it a moment later."""
    assert isinstance(log, ManagesGroups)
    (one,) = await new_topic(log)
    group = f"group-{uuid.uuid4().hex}"
    await log.set_group_offsets(group, {one: OffsetAndMetadata(0)})
    await log.delete_topics([one.topic])

    async def gone() -> bool:
        return not await log.group_offsets(group)

    await until(gone)
