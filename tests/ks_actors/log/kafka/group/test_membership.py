"""Groups of a real Kafka: the cases that other logs do not have."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ks_actors._errors import IllegalGeneration, LogError, LogTimeout, NotAuthorized
from ks_actors.log import Assignor, GroupMetadata, MemberAssignment, MemberInfo, NewMember, OffsetAndMetadata, TopicPartition
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.client import GROUP, TRANSACTION
from ks_actors.log.kafka.group import KafkaMembership
from ks_actors.log.kafka.wire._group_requests import encode_member, heartbeat, join_group, leave_group, sync_group
from ks_actors.log.kafka.wire._requests import AddOffsetsToTxnRequest, EndTxnRequest, init_producer_id, txn_offset_commit
from tests.kafka.broker import STRANGER, STRANGERS_PASSWORD, Broker
from tests.kafka.tampering import Tampering
from tests.ks_actors.log.helpers import assigned, by_turns, group_name, lost, new_topic, revoked, settle
from tests.waiting import PATIENCE_S, SESSION_MS, soon, until


async def enter(
    log: KafkaLog, group: str, topic: str, *, session_timeout_ms: int = SESSION_MS, instance_id: str | None = None, assignor: Assignor = by_turns
) -> KafkaMembership:
    return await log.join(
        group,
        NewMember(
            client_id="c", topics=[topic], user_data=b"", assignor=assignor, session_timeout_ms=session_timeout_ms, rebalance_timeout_ms=30_000,
            instance_id=instance_id,
        ),
    )  # fmt: skip


def block(log: KafkaLog) -> threading.Event:
    """Have the membership's own thread stand still until it is thawed, as if the process did."""
    thaw = threading.Event()
    log._threads.loop.call_soon_threadsafe(thaw.wait, PATIENCE_S)
    return thaw


async def test_a_loop_that_is_blocked_does_not_cost_the_membership(log: KafkaLog) -> None:
    """For twice the session timeout: others get nothing, and the member goes on as it was."""
    (partition,) = await new_topic(log)
    group = group_name()
    member = await enter(log, group, partition.topic)
    event = await assigned(member)
    threading.Event().wait(2 * SESSION_MS / 1000)
    await member.commit({partition: OffsetAndMetadata(1)})
    assert member.group == event.group
    other = await enter(log, group, partition.topic)
    assert (await revoked(member)).partitions == (partition,)
    member.revoked()
    await settle(member, other)


async def test_a_member_that_stands_still_for_too_long_is_removed(kafka_broker: Broker, log: KafkaLog) -> None:
    """Another member has its partitions by then; it hears of that when it goes on, can commit nothing, and may come again."""
    (partition,) = await new_topic(log)
    group = group_name()
    async with KafkaLog(kafka_broker.bootstrap) as elsewhere:
        zombie = await enter(elsewhere, group, partition.topic)
        await assigned(zombie)
        thaw = block(elsewhere)
        other = await enter(log, group, partition.topic)
        assert (await assigned(other)).assignment.partitions == (partition,)
        thaw.set()
        with pytest.raises(IllegalGeneration):
            await zombie.commit({partition: OffsetAndMetadata(1)})
        assert (await lost(zombie)).partitions == (partition,)
        assert await other.committed([partition]) == {}
        zombie.rejoin(b"")
        await settle(zombie, other)


async def test_members_survive_their_coordinator(own_broker: Broker) -> None:
    """It is the same generation when the broker is back, and committed offsets are there."""
    async with KafkaLog(own_broker.bootstrap) as log:
        (partition,) = await new_topic(log)
        member = await enter(log, group_name(), partition.topic, session_timeout_ms=30_000)
        before = await assigned(member)
        await member.commit({partition: OffsetAndMetadata(1)})
        await asyncio.to_thread(own_broker.restart, kill=True)
        await member.commit({partition: OffsetAndMetadata(2)})
        assert member.group == before.group
        assert await member.committed([partition]) == {partition: OffsetAndMetadata(2)}
        other = await enter(log, before.group.group_id, partition.topic, session_timeout_ms=30_000)
        await settle(member, other)


async def test_a_member_commits_transactions_as_soon_as_it_has_joined_the_next_generation(kafka_broker: Broker, log: KafkaLog) -> None:
    """The group refuses the last generation from then on, and the assignment may take long; a member that is lost has no part in it."""
    (partition,) = await new_topic(log)
    group = group_name()
    deals = threading.Event()
    deals.set()

    def deal(members: Sequence[MemberInfo], partitions: Mapping[str, int]) -> Mapping[str, MemberAssignment]:
        assert deals.wait(PATIENCE_S)
        return by_turns(members, partitions)

    member = await enter(log, group, partition.topic, session_timeout_ms=30_000, assignor=deal)
    before = (await assigned(member)).group
    assert member.committing == member.group == before
    async with KafkaLog(kafka_broker.bootstrap) as elsewhere:
        deals.clear()
        other = await enter(elsewhere, group, partition.topic, session_timeout_ms=30_000)
        await revoked(member)
        member.revoked()
        await until(lambda: member.committing != before)
        assert member.group == before
        producer = await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000)
        with pytest.raises(IllegalGeneration):
            await producer.commit({partition: OffsetAndMetadata(1)}, before)
        await producer.commit({partition: OffsetAndMetadata(2)}, member.committing)
        await producer.close()
        # This one had no partitions in the last generation, so it has nothing to commit in the next one.
        assert other.committing == other.group
        deals.set()
        await settle(member, other)
        assert member.committing == member.group != before
        assert await member.committed([partition]) == {partition: OffsetAndMetadata(2)}
        await log.remove_members(group, [each for each in await log.group_members(group) if each.member_id == member.group.member_id])
        await lost(member)
        kept = member.group
        member.rejoin(b"")
        await revoked(other)
        other.revoked()
        await assigned(other)
        assert member.committing == member.group == kept


async def test_closing_the_log_leaves_the_group_at_once(kafka_broker: Broker, log: KafkaLog) -> None:
    """Others need not wait for the session timeout."""
    (partition,) = await new_topic(log)
    group = group_name()
    async with KafkaLog(kafka_broker.bootstrap) as elsewhere:
        leaver = await enter(elsewhere, group, partition.topic, session_timeout_ms=60_000)
        await assigned(leaver)
        other = await enter(log, group, partition.topic)
    assert (await assigned(other)).assignment.partitions == (partition,)


async def test_a_loop_that_ends_without_a_word_leaves(kafka_broker: Broker, log: KafkaLog) -> None:
    """A member that has gone must not keep partitions from others, though its heartbeats could go on."""
    (partition,) = await new_topic(log)
    group = group_name()
    forgotten: list[KafkaLog] = []

    async def forget() -> None:
        elsewhere = KafkaLog(kafka_broker.bootstrap)
        await elsewhere.start()
        forgotten.append(elsewhere)
        await assigned(await enter(elsewhere, group, partition.topic, session_timeout_ms=60_000))
        # Sockets of this loop would be complained of.
        await elsewhere._client.close()

    await asyncio.to_thread(asyncio.run, forget())
    other = await enter(log, group, partition.topic)
    assert (await assigned(other)).assignment.partitions == (partition,)
    await forgotten[0]._threads.close()


async def test_an_instance_keeps_its_place(kafka_broker: Broker, log: KafkaLog) -> None:
    """Closing its log does not give its partitions to others; it has them again when it comes again, in the same generation."""
    partitions = await new_topic(log, 2)
    topic, group = partitions[0].topic, group_name()
    async with KafkaLog(kafka_broker.bootstrap) as elsewhere:
        stays = await enter(log, group, topic, session_timeout_ms=60_000, instance_id="a")
        goes = await enter(elsewhere, group, topic, session_timeout_ms=60_000, instance_id="b")
        _, before = await settle(stays, goes)
    async with KafkaLog(kafka_broker.bootstrap) as again:
        event = await assigned(await enter(again, group, topic, session_timeout_ms=60_000, instance_id="b"))
        assert event.assignment == before.assignment
        assert event.group.generation == before.group.generation == stays.group.generation
        assert event.group.member_id != before.group.member_id


async def test_an_instance_that_leaves_is_gone(log: KafkaLog) -> None:
    """Leaving is for good: others get its partitions."""
    partitions = await new_topic(log, 2)
    topic, group = partitions[0].topic, group_name()
    stays = await enter(log, group, topic, session_timeout_ms=60_000, instance_id="a")
    goes = await enter(log, group, topic, session_timeout_ms=60_000, instance_id="b")
    await settle(stays, goes)
    await goes.leave()
    (event,) = await settle(stays)
    assert set(event.assignment.partitions) == set(partitions)


async def test_a_rejoin_is_heard_without_anything_new(log: KafkaLog) -> None:
    """From all members, leader or not."""
    (partition,) = await new_topic(log)
    group = group_name()
    members = [await enter(log, group, partition.topic), await enter(log, group, partition.topic)]
    generation = (await settle(*members))[0].group.generation
    for member in members:
        member.rejoin(b"")
        after = (await settle(*members))[0].group.generation
        assert after > generation
        generation = after


async def test_an_assignor_that_fails_is_heard_by_its_leader(log: KafkaLog) -> None:
    """The group goes on after the leader has heard of the error."""
    (partition,) = await new_topic(log)
    broken = True

    def assignor(members: Sequence[MemberInfo], counts: Mapping[str, int]) -> Mapping[str, MemberAssignment]:
        if broken:
            raise RuntimeError("no idea")
        return by_turns(members, counts)

    member = await enter(log, group_name(), partition.topic, assignor=assignor)
    with pytest.raises(RuntimeError, match="no idea"):
        await soon(member.event())
    broken = False
    member.rejoin(b"")
    assert (await settle(member))[0].assignment.partitions == (partition,)


async def test_the_assignor_does_not_wait_for_the_loop_of_the_leader(log: KafkaLog) -> None:
    """It is called beside it, so that a leader with a blocked loop keeps no member waiting; nor does a slow one hold up the loop."""
    (partition,) = await new_topic(log)
    called, go_on = threading.Event(), threading.Event()

    def assignor(members: Sequence[MemberInfo], counts: Mapping[str, int]) -> Mapping[str, MemberAssignment]:
        called.set()
        assert go_on.wait(PATIENCE_S), "the loop stands still"
        return by_turns(members, counts)

    member = await enter(log, group_name(), partition.topic, assignor=assignor)
    # The loop stands still until the assignor is called, and turns while that waits.
    assert called.wait(PATIENCE_S)
    go_on.set()
    assert (await settle(member))[0].assignment.partitions == (partition,)


async def test_an_assignor_that_does_not_return_is_heard_by_its_leader(log: KafkaLog) -> None:
    """After the rebalance timeout the group goes on without an assignment, and can go on from there."""
    (partition,) = await new_topic(log)
    go_on = threading.Event()

    def assignor(members: Sequence[MemberInfo], counts: Mapping[str, int]) -> Mapping[str, MemberAssignment]:
        go_on.wait()
        return by_turns(members, counts)

    new = NewMember(
        client_id="c", topics=[partition.topic], user_data=b"", assignor=assignor, session_timeout_ms=10_000, rebalance_timeout_ms=1_000
    )  # fmt: skip
    member = await log.join(group_name(), new)
    with pytest.raises(LogTimeout, match="has not returned for 1000 ms"):
        await soon(member.event())
    go_on.set()
    member.rejoin(b"")
    assert (await settle(member))[0].assignment.partitions == (partition,)


class Leader:
    """A member that leads a group, and deals out when it is told to."""

    def __init__(self, log: KafkaLog, group: str, topic: str) -> None:
        self._log = log
        self._metadata = encode_member([topic], 0, b"")
        self.group = GroupMetadata(group, -1, "")

    async def ask(self, request: Any) -> Any:
        return await self._log._client.send_to_coordinator(GROUP, self.group.group_id, request, lambda _: (), channel="leader")

    async def join(self) -> list[str]:
        """Join, and return the ids of all members."""
        while True:
            request = join_group(
                self.group.group_id, self.group.member_id, None, self._metadata, session_timeout_ms=60_000, rebalance_timeout_ms=60_000
            )  # fmt: skip
            response = await self.ask(request)
            self.group = GroupMetadata(self.group.group_id, response.generation_id, response.member_id)
            if response.error_code == 0:
                assert response.leader_id == response.member_id
                return [member_id for member_id, *_ in response.members]

    async def join_with_another(self) -> list[str]:
        while len(members := await self.join()) < 2:
            pass
        return members


async def test_a_member_removed_before_its_assignment_gets_lost(kafka_broker: Broker, log: KafkaLog) -> None:
    """Brokers never answer it, as it is no member any more; its heartbeats tell, and it comes again at once."""
    (partition,) = await new_topic(log)
    leader = Leader(log, group_name(), partition.topic)
    await leader.join()
    async with KafkaLog(kafka_broker.bootstrap) as elsewhere:
        member = await enter(elsewhere, leader.group.group_id, partition.topic, session_timeout_ms=60_000)
        members = await soon(leader.join_with_another())
        for _ in range(10):  # meanwhile the other one asks for what it is dealt
            assert (await leader.ask(heartbeat(leader.group, None))).error_code == 0
        (other,) = set(members) - {leader.group.member_id}
        assert (await leader.ask(leave_group(leader.group.group_id, other, None))).error_code == 0
        members = await soon(leader.join_with_another())
        assignments = {member_id: MemberAssignment((partition,) if member_id != leader.group.member_id else ()) for member_id in members}
        await leader.ask(sync_group(leader.group, None, assignments))
        assert (await assigned(member)).assignment.partitions == (partition,)


async def test_settings_that_the_group_does_not_take_are_told(log: KafkaLog) -> None:
    """Settings that the group does not take are told as Kafka names them."""
    (partition,) = await new_topic(log)
    member = await enter(log, group_name(), partition.topic, session_timeout_ms=5)
    with pytest.raises(LogError, match="INVALID_SESSION_TIMEOUT"):
        await soon(member.event())


async def test_a_group_that_is_forbidden_is_named(secure_broker: Broker) -> None:
    """By the caller that waits for membership events."""
    options = KafkaOptions(sasl_mechanism="PLAIN", sasl_username=STRANGER, sasl_password=STRANGERS_PASSWORD)
    async with KafkaLog(secure_broker.address("SASL_PLAINTEXT"), options=options) as log:
        group = group_name()
        member = await enter(log, group, "topic")
        with pytest.raises(NotAuthorized, match=group):
            await soon(member.event())
        with pytest.raises(NotAuthorized, match=group):
            await member.committed([TopicPartition("topic", 0)])


async def test_offsets_that_are_about_to_change_are_waited_for(log: KafkaLog, tampering: Tampering) -> None:
    """The next owner of a partition starts after the offsets that an open transaction commits, not before."""
    (partition,) = await new_topic(log)
    member = await enter(log, group_name(), partition.topic)
    await assigned(member)
    await member.commit({partition: OffsetAndMetadata(7)})
    client, name = log._client, group_name()

    async def transaction(request: Any) -> Any:
        def codes(response: Any) -> list[int]:
            return [response.error_code]

        return await client.send_to_coordinator(TRANSACTION, name, request, codes)

    made = await transaction(init_producer_id(name, 60_000))
    await transaction(AddOffsetsToTxnRequest(name, made.producer_id, made.producer_epoch, member.group.group_id))
    offsets = {partition: OffsetAndMetadata(99)}
    request = txn_offset_commit(name, made.producer_id, made.producer_epoch, member.group, offsets, {partition: -1})
    await client.send_to_coordinator(
        GROUP, member.group.group_id, request, lambda response: [code for _, ps, _ in response.topics for _, code, _ in ps]
    )
    waiting = asyncio.ensure_future(member.committed([partition]))
    # It has been told that they are unstable when it asks again.
    await until(lambda: tampering.count("OffsetFetch") >= 3)
    assert not waiting.done()
    await transaction(EndTxnRequest(name, made.producer_id, made.producer_epoch, True))
    assert await soon(waiting) == offsets
