"""Groups: the duties of each log."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from ks_actors._errors import IllegalGeneration, LogClosed
from ks_actors.log import Log, MemberAssignment, MemberInfo, NewMember, NewTopic, OffsetAndMetadata, TopicPartition
from ks_actors.log._groups import ManagesGroups
from tests.ks_actors.log.helpers import assigned, by_turns, group_name, join, lost, new_topic, revoked, settle
from tests.waiting import soon, until


async def test_one_member_gets_everything(log: Log) -> None:
    """The first event is Assigned, and tells the group as the member has it from then on."""
    partitions = await new_topic(log, 3)
    group = group_name()
    member = await join(log, group, partitions[0].topic, user_data=b"mine")
    event = await assigned(member)
    assert set(event.assignment.partitions) == set(partitions)
    assert event.assignment.user_data == b"mine"
    assert event.group == member.group
    assert event.group.group_id == group
    assert event.group.member_id


async def test_members_share_partitions(log: Log) -> None:
    """The earlier members release first; then all are of one generation, and no partition has two owners."""
    partitions = await new_topic(log, 4)
    group = group_name()
    first = await join(log, group, partitions[0].topic)
    before = await assigned(first)
    second = await join(log, group, partitions[0].topic)
    assert set((await revoked(first)).partitions) == set(partitions)
    first.revoked()
    one, two = await settle(first, second)
    assert one.group.generation == two.group.generation > before.group.generation
    assert sorted(one.assignment.partitions + two.assignment.partitions) == partitions
    assert len(one.assignment.partitions) == len(two.assignment.partitions) == 2


async def test_the_group_waits_until_all_have_let_go(log: Log) -> None:
    """The newcomer gets nothing before; work on the partitions can still be committed."""
    (partition,) = await new_topic(log)
    group = group_name()
    first = await join(log, group, partition.topic)
    await assigned(first)
    second = await join(log, group, partition.topic)
    waiting = asyncio.ensure_future(assigned(second))
    await revoked(first)
    await first.commit({partition: OffsetAndMetadata(5)})
    assert not waiting.done()
    first.revoked()
    await settle(first)
    assert await second.committed([partition]) == {partition: OffsetAndMetadata(5)}
    await waiting


async def test_a_member_that_has_not_read_its_assignment_holds_up_nobody(log: Log) -> None:
    """Its assignment was never in effect: the next rebalance goes on without asking it to release."""
    partitions = await new_topic(log, 2)
    group = group_name()
    first = await join(log, group, partitions[0].topic)

    async def dealt() -> bool:
        assert isinstance(log, ManagesGroups)
        return [member.partitions for member in await log.group_members(group)] == [frozenset(partitions)]

    await until(dealt)
    second = await join(log, group, partitions[0].topic)
    two, one = await assigned(second), await assigned(first)
    assert sorted(one.assignment.partitions + two.assignment.partitions) == partitions


async def test_a_member_that_leaves_makes_room(log: Log) -> None:
    """Its partitions go to the others; its calls raise LogClosed."""
    partitions = await new_topic(log, 2)
    group = group_name()
    first, second = await join(log, group, partitions[0].topic), await join(log, group, partitions[0].topic)
    await settle(first, second)
    waiting = asyncio.ensure_future(second.event())
    await asyncio.sleep(0)
    await second.leave()
    await second.leave()
    with pytest.raises(LogClosed):
        await soon(waiting)
    with pytest.raises(LogClosed):
        await second.event()
    with pytest.raises(LogClosed):
        second.rejoin(b"")
    (event,) = await settle(first)
    assert set(event.assignment.partitions) == set(partitions)


async def test_the_leader_gets_the_data_of_members(log: Log) -> None:
    """Topics and user data of all, and how many partitions there are; a rejoin brings new user data."""
    partitions = await new_topic(log, 2)
    topic = partitions[0].topic
    seen: list[tuple[set[tuple[frozenset[str], bytes]], dict[str, int]]] = []

    def note(members: Sequence[MemberInfo], counts: Mapping[str, int]) -> Mapping[str, MemberAssignment]:
        seen.append(({(member.topics, member.user_data) for member in members}, dict(counts)))
        return by_turns(members, counts)

    group = group_name()
    members = [
        await log.join(
            group, NewMember(client_id="c", topics=topics, user_data=data, assignor=note, session_timeout_ms=60_000, rebalance_timeout_ms=60_000)
        )
        for topics, data in (([topic], b"one"), ([topic, f"{topic}-later"], b"two"))
    ]
    events = await settle(*members)
    both = frozenset({topic, f"{topic}-later"})
    assert seen[-1] == ({(frozenset({topic}), b"one"), (both, b"two")}, {topic: 2})
    members[1].rejoin(b"three")
    again = await settle(*members)
    members[1].rejoin(b"four")
    # Who asks lets go first; then the others hear of it.
    await revoked(members[1])
    members[1].revoked()
    await revoked(members[0])
    members[0].revoked(b"five")
    await settle(*members)
    assert seen[-1] == ({(frozenset({topic}), b"five"), (both, b"four")}, {topic: 2})
    del seen[-1]
    assert seen[-1] == ({(frozenset({topic}), b"one"), (both, b"three")}, {topic: 2})
    assert again[0].group.generation > events[0].group.generation
    assert {event.assignment.user_data for event in again} == {b"one", b"three"}


async def test_a_member_that_does_not_let_go_is_thrown_out(log: Log) -> None:
    """After the rebalance timeout it hears that its partitions are lost, and the others go on without it; it may come again."""
    (partition,) = await new_topic(log)
    group = group_name()
    slow = await join(log, group, partition.topic, rebalance_timeout_ms=1_000)
    await assigned(slow)
    other = await join(log, group, partition.topic, rebalance_timeout_ms=1_000)
    await revoked(slow)
    event = await assigned(other)
    assert event.assignment.partitions == (partition,)
    assert (await lost(slow)).partitions == (partition,)
    with pytest.raises(IllegalGeneration):
        await slow.commit({partition: OffsetAndMetadata(1)})
    slow.revoked()
    slow.rejoin(b"again")
    await settle(slow, other)
    assert await slow.committed([partition]) == {}


async def test_offsets_are_committed_by_members_of_the_generation(log: Log) -> None:
    """All or none; partitions without a commit are left out."""
    one, two = await new_topic(log, 2)
    group = group_name()
    member = await join(log, group, one.topic)
    with pytest.raises(IllegalGeneration):
        await member.commit({one: OffsetAndMetadata(1)})
    await assigned(member)
    await member.commit({one: OffsetAndMetadata(4, "x")})
    assert await member.committed([one, two]) == {one: OffsetAndMetadata(4, "x")}
    other = await join(log, group, one.topic)
    await revoked(member)
    member.revoked()
    await settle(other)
    # The event is there, but the member has not read it: it is still of the old generation.
    with pytest.raises(IllegalGeneration):
        await member.commit({one: OffsetAndMetadata(9), two: OffsetAndMetadata(9)})
    await assigned(member)
    assert await other.committed([one, two]) == {one: OffsetAndMetadata(4, "x")}


async def test_offsets_outlive_their_members(log: Log) -> None:
    """Members that come after all have left find them; other groups do not."""
    (partition,) = await new_topic(log)
    group = group_name()
    member = await join(log, group, partition.topic)
    first = await assigned(member)
    await member.commit({partition: OffsetAndMetadata(2)})
    await member.leave()
    later, stranger = await join(log, group, partition.topic), await join(log, group_name(), partition.topic)
    assert await later.committed([partition]) == {partition: OffsetAndMetadata(2)}
    assert await stranger.committed([partition]) == {}
    event = await assigned(later)
    assert event.group.member_id != first.group.member_id


async def test_a_group_hears_of_its_topics(log: Log) -> None:
    """When a topic is created that members wait for, they get its partitions."""
    topic = f"topic-{group_name()}"
    member = await join(log, group_name(), topic)
    assert (await assigned(member)).assignment.partitions == ()
    await log.create_topics([NewTopic(topic, 2)])
    (event,) = await settle(member)
    assert set(event.assignment.partitions) == {TopicPartition(topic, 0), TopicPartition(topic, 1)}


async def test_a_takeover_waits_for_no_former_self_of_its_client_id(log: Log) -> None:
    """They are thrown out when it comes, without it they stay: they may live."""
    (partition,) = await new_topic(log)
    group = group_name()
    first = await join(log, group, partition.topic)
    await assigned(first)
    second = await join(log, group, partition.topic)
    await settle(first, second)
    third = await join(log, group, partition.topic, takes_over=True)
    (event,) = await settle(third)
    assert event.assignment.partitions == (partition,)
    for former in (first, second):
        await lost(former)


async def test_a_newcomer_takes_the_place_of_its_instance(log: Log) -> None:
    """The earlier member with the instance id gets Lost, with the reason; the newcomer has its partitions in the same generation."""
    (partition,) = await new_topic(log)
    group = group_name()
    old = await join(log, group, partition.topic, instance_id="i")
    before = await assigned(old)
    new = await join(log, group, partition.topic, instance_id="i")
    event = await lost(old)
    assert event.partitions == (partition,)
    assert event.fenced
    after = await assigned(new)
    assert after.assignment.partitions == (partition,)
    assert after.group.generation == before.group.generation
    assert after.group.member_id != before.group.member_id
    with pytest.raises(IllegalGeneration):
        await old.commit({partition: OffsetAndMetadata(1)})
    await new.commit({partition: OffsetAndMetadata(2)})


async def test_an_instance_that_closes_keeps_its_place(log: Log) -> None:
    """Others are not asked for anything; a member that returns with its instance id has its partitions in the same generation, leader or not."""
    partitions = await new_topic(log, 2)
    topic, group = partitions[0].topic, group_name()
    members = {name: await join(log, group, topic, instance_id=name) for name in ("a", "b")}
    before = dict(zip(members, await settle(*members.values()), strict=True))
    for name, other in (("a", "b"), ("b", "a")):
        await members[name].close()
        with pytest.raises(LogClosed):
            await members[name].event()
        await members[other].commit(dict.fromkeys(before[other].assignment.partitions, OffsetAndMetadata(1)))
        members[name] = await join(log, group, topic, instance_id=name)
        after = await assigned(members[name])
        assert after.assignment == before[name].assignment
        assert after.group.generation == members[other].group.generation == before[name].group.generation
    # The group is whole: both are in its next rebalance.
    members["a"].rejoin(b"")
    await settle(*members.values())


async def test_an_instance_that_returns_gets_its_former_assignment_whatever_it_reads(log: Log) -> None:
    """Nobody assigns anew, though it reads another topic now; that counts when it asks."""
    (partition,), (other,) = await new_topic(log), await new_topic(log)
    group = group_name()
    first = await join(log, group, partition.topic, instance_id="a")
    before = await assigned(first)
    await first.close()
    again = await join(log, group, other.topic, instance_id="a")
    after = await assigned(again)
    assert (after.assignment, after.group.generation) == (before.assignment, before.group.generation)
    again.rejoin(b"")
    (event,) = await settle(again)
    assert event.assignment.partitions == (other,)
    assert event.group.generation == before.group.generation + 1


async def test_an_instance_that_leaves_gives_its_partitions_away(log: Log) -> None:
    """At once, with any session timeout."""
    partitions = await new_topic(log, 2)
    topic, group = partitions[0].topic, group_name()
    stays, goes = await join(log, group, topic, instance_id="a"), await join(log, group, topic, instance_id="b")
    await settle(stays, goes)
    await goes.leave()
    (event,) = await settle(stays)
    assert set(event.assignment.partitions) == set(partitions)


async def test_a_member_without_an_instance_id_leaves_on_close(log: Log) -> None:
    """Others get its partitions."""
    partitions = await new_topic(log, 2)
    topic, group = partitions[0].topic, group_name()
    stays, goes = await join(log, group, topic), await join(log, group, topic)
    await settle(stays, goes)
    await goes.close()
    (event,) = await settle(stays)
    assert set(event.assignment.partitions) == set(partitions)


async def test_the_topics_of_an_instance_that_came_again_are_looked_after(log: Log) -> None:
    """It may have been the leader, and nobody else looks whether topics come."""
    (partition,) = await new_topic(log)
    group, later = group_name(), f"topic-{group_name()}"
    first = await join(log, group, partition.topic, later, instance_id="a")
    await assigned(first)
    await first.close()
    again = await join(log, group, partition.topic, later, instance_id="a")
    await assigned(again)
    await log.create_topics([NewTopic(later, 1)])
    (event,) = await settle(again)
    assert set(event.assignment.partitions) == {partition, TopicPartition(later, 0)}
