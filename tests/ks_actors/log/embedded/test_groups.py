"""Groups of the embedded log in virtual time: cases that the port leaves open, and that are hard to bring about on a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from ks_actors._errors import IllegalGeneration, LogError, UnknownTopicOrPartition
from ks_actors.log import Lease, MemberAssignment, MemberInfo, NewMember, NewTopic, OffsetAndMetadata, TopicPartition
from ks_actors.log.embedded import EmbeddedLog, EmbeddedMembership
from tests.ks_actors.log.helpers import NOBODY, assigned, by_turns, join, lost, new_topic, revoked, settle, write

pytestmark = pytest.mark.usefixtures("actors_seed")


async def enter(
    log: EmbeddedLog,
    *topics: str,
    rebalance_timeout_ms: int = 1000,
    session_timeout_ms: int = 1,
    instance_id: str | None = None,
    lease: Lease | None = None,
) -> EmbeddedMembership:
    member = await log.join(
        "g",
        NewMember(
            client_id="c", topics=topics, user_data=b"", assignor=by_turns, session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms, instance_id=instance_id, lease=lease,
        ),
    )  # fmt: skip
    assert member.group.generation == -1
    return member


async def test_an_expired_member_has_lost_everything(embedded: EmbeddedLog) -> None:
    """It hears so once, the others get its partitions, and it comes again under another id."""
    (partition,) = await new_topic(embedded)
    first, second = await enter(embedded, partition.topic), await enter(embedded, partition.topic)
    await settle(first, second)
    old = first.group
    embedded.expire(first)
    embedded.expire(first)
    assert (await lost(first)).partitions == (partition,)
    assert await revoked(second) is not None
    second.revoked()
    assert (await assigned(second)).assignment.partitions == (partition,)
    with pytest.raises(IllegalGeneration, match="does not know member"):
        await first.commit({partition: OffsetAndMetadata(1)})
    first.rejoin(b"")
    await settle(first, second)
    assert first.group.member_id != old.member_id


async def test_a_removed_member_writes_nothing_more_under_its_lease(embedded: EmbeddedLog) -> None:
    """Until it is a member again; other producers go on."""
    (partition,) = await new_topic(embedded)
    lease, losses = Lease(), list[bool]()
    lease.lost = lambda: losses.append(lease.holds())
    producer, other = await embedded.producer(client_id="p", lease=lease), await embedded.producer(client_id="o")
    member = await enter(embedded, partition.topic, lease=lease)
    await assigned(member)
    assert await write(producer, partition, b"a") == 1
    embedded.expire(member)
    assert losses == [False]
    with pytest.raises(IllegalGeneration, match="their member has left the group"):
        await write(producer, partition, b"late")
    assert await write(other, partition, b"b") == 2
    await lost(member)
    member.rejoin(b"")
    await assigned(member)
    assert await write(producer, partition, b"c") == 3


async def test_a_rejoin_before_reading_still_reports_the_loss(embedded: EmbeddedLog) -> None:
    """Lost, then Assigned."""
    (partition,) = await new_topic(embedded)
    member = await enter(embedded, partition.topic)
    await assigned(member)
    embedded.expire(member)
    member.rejoin(b"")
    await lost(member)
    await assigned(member)


async def test_an_assignment_that_nobody_has_read_need_not_be_revoked(embedded: EmbeddedLog) -> None:
    """The next one takes its place, and a member that is expired before it reads has lost nothing."""
    (partition,) = await new_topic(embedded)
    first = await enter(embedded, partition.topic)
    await asyncio.sleep(0)
    second = await enter(embedded, partition.topic)
    event = await assigned(first)
    assert event.group.generation == 2
    await assigned(second)
    first.rejoin(b"")
    assert (await revoked(first)).partitions == (partition,)
    embedded.expire(second)
    assert (await lost(second)).partitions == ()
    first.revoked()
    await assigned(first)


async def test_members_that_come_at_once_are_of_one_generation(embedded: EmbeddedLog) -> None:
    """The group is not rebalanced for each of them."""
    (topic, *_) = {partition.topic for partition in await new_topic(embedded, 3)}
    members = [await enter(embedded, topic) for _ in range(3)]
    assert [(await assigned(member)).group.generation for member in members] == [1, 1, 1]


async def test_the_rebalance_timeout_runs_from_the_beginning_of_the_rebalance(embedded: EmbeddedLog) -> None:
    """A member that comes in between does not prolong it; the longest of the members' timeouts counts."""
    (partition,) = await new_topic(embedded)
    loop = asyncio.get_running_loop()
    slow = await enter(embedded, partition.topic, rebalance_timeout_ms=3000)
    await assigned(slow)
    begin = loop.time()
    second = await enter(embedded, partition.topic)
    await asyncio.sleep(2)
    third = await enter(embedded, partition.topic)
    await settle(second, third)
    assert loop.time() - begin == pytest.approx(3)
    # The unread Revoked is gone: there is nothing to let go of any more.
    await lost(slow)


async def test_a_group_may_run_out_of_members_in_a_rebalance(embedded: EmbeddedLog) -> None:
    """By the timeout, or because the last one leaves; it goes on with the next member."""
    (partition,) = await new_topic(embedded)
    member = await enter(embedded, partition.topic)
    await assigned(member)
    member.rejoin(b"")
    await asyncio.sleep(2)
    await lost(member)
    member.rejoin(b"")
    await member.leave()
    later = await enter(embedded, partition.topic)
    assert (await assigned(later)).group.generation == 2


async def test_the_rebalance_goes_on_without_leaving_members(embedded: EmbeddedLog) -> None:
    """Nobody waits for the timeout."""
    (partition,) = await new_topic(embedded)
    first = await enter(embedded, partition.topic, rebalance_timeout_ms=1_000_000)
    await assigned(first)
    second = await enter(embedded, partition.topic)
    await first.leave()
    begin = asyncio.get_running_loop().time()
    assert (await assigned(second)).assignment.partitions == (partition,)
    assert asyncio.get_running_loop().time() == begin


async def test_an_error_of_the_assignor_is_raised_on_the_leader(embedded: EmbeddedLog) -> None:
    """It comes out of the leader's event; the group has no assignment then, and gets one with the next rejoin."""
    (partition,) = await new_topic(embedded)
    fail = True

    def moody(members: Sequence[MemberInfo], counts: Mapping[str, int]) -> Mapping[str, MemberAssignment]:
        if fail:
            raise ZeroDivisionError("not today")
        return by_turns(members, counts)

    leader = await embedded.join(
        "g", NewMember(client_id="l", topics=[partition.topic], user_data=b"", assignor=moody, session_timeout_ms=1, rebalance_timeout_ms=1000)
    )
    follower = await enter(embedded, partition.topic)
    with pytest.raises(ZeroDivisionError, match="not today"):
        await leader.event()
    fail = False
    follower.rejoin(b"")
    assert (await assigned(leader)).assignment.partitions == (partition,)
    assert (await assigned(follower)).assignment.partitions == ()


async def test_members_without_partitions_get_an_empty_assignment(embedded: EmbeddedLog) -> None:
    """An assignor may leave members out."""
    (partition,) = await new_topic(embedded)
    member = await embedded.join(
        "g",
        NewMember(client_id="l", topics=[partition.topic], user_data=b"", assignor=lambda *_: {}, session_timeout_ms=1, rebalance_timeout_ms=1000),
    )
    assert (await assigned(member)).assignment.partitions == ()


async def test_topics_of_others_do_not_disturb_a_group(embedded: EmbeddedLog) -> None:
    """It rebalances for topics of its own: when they appear, and when they go, with their committed offsets."""
    (partition,) = await new_topic(embedded)
    member = await enter(embedded, partition.topic)
    await assigned(member)
    await member.commit({partition: OffsetAndMetadata(3)})
    await new_topic(embedded)
    waiting = asyncio.ensure_future(member.event())
    await asyncio.sleep(1)
    assert not waiting.done()
    await embedded.delete_topics([partition.topic])
    await waiting
    member.revoked()
    assert (await assigned(member)).assignment.partitions == ()
    await embedded.create_topics([NewTopic(partition.topic, 1)])
    await settle(member)
    assert await member.committed([partition]) == {}


async def test_offsets_of_missing_partitions_cannot_be_committed(embedded: EmbeddedLog) -> None:
    """Neither by a member nor with a transaction, which is void then."""
    (partition,) = await new_topic(embedded)
    member = await enter(embedded, partition.topic)
    await assigned(member)
    offsets = {partition: OffsetAndMetadata(1), TopicPartition("nowhere", 0): OffsetAndMetadata(1)}
    with pytest.raises(UnknownTopicOrPartition):
        await member.commit(offsets)
    producer = await embedded.transactional_producer("x", client_id="p", timeout_ms=1000)
    with pytest.raises(UnknownTopicOrPartition):
        await producer.commit(offsets, member.group)
    assert await member.committed([partition]) == {}


async def test_nobody_may_commit_for_a_group_that_has_members(embedded: EmbeddedLog) -> None:
    """While it has none, a caller that is no member may: so tools set offsets."""
    (partition,) = await new_topic(embedded)
    producer = await embedded.transactional_producer("x", client_id="p", timeout_ms=1000)
    nobody = type(NOBODY)("g", -1, "")
    await producer.commit({partition: OffsetAndMetadata(2)}, nobody)
    member = await enter(embedded, partition.topic)
    assert await member.committed([partition]) == {partition: OffsetAndMetadata(2)}
    with pytest.raises(IllegalGeneration):
        await producer.commit({partition: OffsetAndMetadata(3)}, nobody)


async def test_nothing_is_left_running_when_the_log_is_closed(embedded: EmbeddedLog) -> None:
    """No timer of a group or a transaction goes off, and no task is left."""
    (partition,) = await new_topic(embedded)
    member = await enter(embedded, partition.topic)
    await assigned(member)
    await enter(embedded, partition.topic)
    await enter(embedded, partition.topic)
    await embedded.close()
    await asyncio.sleep(3600)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_only_errors_of_the_log_come_from_the_log(embedded: EmbeddedLog) -> None:
    """A membership that was never assigned anything can be left like any other."""
    member = await join(embedded, "g", "nowhere")
    await member.leave()
    with pytest.raises(LogError):
        await member.committed([])


async def test_a_place_is_kept_for_a_session_timeout(embedded: EmbeddedLog) -> None:
    """Others get the member's partitions afterwards, and a later joiner is a new member."""
    (partition,) = await new_topic(embedded)
    loop = asyncio.get_running_loop()
    stays = await enter(embedded, partition.topic, session_timeout_ms=2_000, instance_id="a")
    other = await enter(embedded, partition.topic)
    await settle(stays, other)
    await stays.close()
    begin = loop.time()
    await revoked(other)
    assert loop.time() - begin == pytest.approx(2)
    other.revoked()
    assert (await assigned(other)).assignment.partitions == (partition,)
    again = await enter(embedded, partition.topic, instance_id="a")
    await settle(again, other)


async def test_a_rebalance_does_not_wait_for_absent_members(embedded: EmbeddedLog) -> None:
    """It counts as present, and gets its assignment when it returns."""
    partitions = await new_topic(embedded, 2)
    topic, loop = partitions[0].topic, asyncio.get_running_loop()
    first = await enter(embedded, topic, session_timeout_ms=60_000, instance_id="a")
    await assigned(first)
    await first.close()
    begin = loop.time()
    second = await enter(embedded, topic, instance_id="b")
    (event,) = await settle(second)
    assert len(event.assignment.partitions) == 1
    again = await enter(embedded, topic, session_timeout_ms=60_000, instance_id="a")
    after = await assigned(again)
    assert after.assignment.partitions + event.assignment.partitions in {tuple(partitions), tuple(reversed(partitions))}
    assert after.group.generation == event.group.generation
    assert loop.time() == begin


async def test_a_member_that_leaves_in_a_rebalance_is_not_waited_for(embedded: EmbeddedLog) -> None:
    """The group assigns nothing without members present: the next member that comes triggers it."""
    (partition,) = await new_topic(embedded)
    first = await enter(embedded, partition.topic, session_timeout_ms=60_000, instance_id="a")
    await assigned(first)
    second = await enter(embedded, partition.topic, session_timeout_ms=60_000, instance_id="b")
    await first.close()
    await second.close()
    again = await enter(embedded, partition.topic, session_timeout_ms=60_000, instance_id="a")
    event = await assigned(again)
    assert event.assignment.partitions == (partition,)
    assert event.group.generation == 2


async def test_nobody_looks_at_topics_while_all_are_absent(embedded: EmbeddedLog) -> None:
    """As with a broker: a returning member gets its former partitions, and those of now when it asks."""
    (partition,) = await new_topic(embedded)
    first = await enter(embedded, partition.topic, "later", session_timeout_ms=60_000, instance_id="a")
    await assigned(first)
    await first.close()
    await embedded.create_topics([NewTopic("later", 1)])
    again = await enter(embedded, partition.topic, "later", session_timeout_ms=60_000, instance_id="a")
    assert (await assigned(again)).assignment.partitions == (partition,)
    again.rejoin(b"")
    (event,) = await settle(again)
    assert set(event.assignment.partitions) == {partition, TopicPartition("later", 0)}


async def test_no_place_outlives_its_log(embedded: EmbeddedLog) -> None:
    """The timer of an absent member is not left running."""
    (partition,) = await new_topic(embedded)
    first = await enter(embedded, partition.topic, session_timeout_ms=60_000, instance_id="a")
    await assigned(first)
    await first.close()
    await embedded.close()
    assert not embedded._groups.get("g")._absences
