"""A member's errors: it waits for the temporary ones to pass, and reports the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ks_actors._errors import IllegalGeneration, LogClosed, LogError, LogTimeout, NotAuthorized, UnknownTopicOrPartition
from ks_actors.lifecycle._clock import elapsed_time
from ks_actors.log import Lease, Membership, NewMember, OffsetAndMetadata, TopicPartition
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.client._connections import Unavailable
from ks_actors.log.kafka.client._loop_thread import LoopThread
from ks_actors.log.kafka.group._group_member import GroupMember
from ks_actors.log.kafka.group._membership import KafkaMembership
from tests.kafka.broker import Broker
from tests.kafka.tampering import Tampering, error_code, setting
from tests.ks_actors.log.helpers import assigned, by_turns, group_name, lost, new_topic, revoked, settle
from tests.waiting import PATIENCE_S, soon, until

LOADING, NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, FORBIDDEN, FENCED = 14, 16, 22, 25, 27, 30, 82


@pytest.fixture
async def log(kafka_broker: Broker) -> AsyncIterator[KafkaLog]:
    async with KafkaLog(kafka_broker.bootstrap, options=KafkaOptions(api_timeout_ms=3_000)) as made:
        yield made


async def enter(log: KafkaLog, group: str, topic: str, *, session_timeout_ms: int = 3_000, lease: Lease | None = None) -> Membership:
    return await log.join(
        group,
        NewMember(
            client_id="c",
            topics=[topic],
            user_data=b"",
            assignor=by_turns,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=30_000,
            lease=lease,
        ),
    )


@pytest.mark.parametrize("kind", ["JoinGroup", "SyncGroup"])
@pytest.mark.parametrize("code", [LOADING, NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING])
async def test_joining_goes_on_until_it_is_done(log: KafkaLog, tampering: Tampering, kind: str, code: int) -> None:
    """Nothing is held meanwhile, so nothing is lost."""
    (partition,) = await new_topic(log)
    tampering.add(kind, error_code(code), error_code(code))
    member = await enter(log, group_name(), partition.topic)
    assert (await assigned(member)).assignment.partitions == (partition,)
    assert tampering.left == 0


async def test_a_coordinator_that_cannot_be_reached_is_waited_for(log: KafkaLog, tampering: Tampering, caplog: pytest.LogCaptureFixture) -> None:
    """For longer than any call may take; it is said that it takes so long."""
    (partition,) = await new_topic(log)
    tampering.add("JoinGroup", LogTimeout("late"))
    member = await enter(log, group_name(), partition.topic)
    assert (await assigned(member)).assignment.partitions == (partition,)
    assert "late" in caplog.text


@pytest.mark.parametrize("code", [ILLEGAL_GENERATION, UNKNOWN_MEMBER, FENCED])
async def test_a_heartbeat_tells_a_member_that_it_is_out(log: KafkaLog, tampering: Tampering, code: int) -> None:
    """The member loses its partitions, and can join again."""
    (partition,) = await new_topic(log)
    member = await enter(log, group_name(), partition.topic)
    await assigned(member)
    tampering.add("Heartbeat", error_code(code))
    assert (await lost(member)).partitions == (partition,)
    member.rejoin(b"")
    assert (await settle(member))[0].assignment.partitions == (partition,)


async def test_heartbeats_extend_the_lease_until_the_member_is_out(log: KafkaLog, tampering: Tampering) -> None:
    """It holds before anything is assigned, ends with the membership, with an event, and holds again after a return."""
    (partition,) = await new_topic(log)
    lease, losses = Lease(), list[bool]()
    lease.lost = lambda: losses.append(lease.holds())
    member = await enter(log, group_name(), partition.topic, lease=lease)
    await assigned(member)
    await until(lease.holds)
    tampering.add("Heartbeat", error_code(UNKNOWN_MEMBER))
    await lost(member)
    assert losses == [False]
    member.rejoin(b"")
    await assigned(member)
    await until(lease.holds)
    await member.leave()
    assert not lease.holds()
    assert losses == [False]


async def test_a_member_that_is_removed_while_it_joins_is_told_by_its_heartbeats(log: KafkaLog, tampering: Tampering) -> None:
    """The answer to its join may never come; its lease ends, and it loses what it keeps until then."""
    first, _ = await new_topic(log, 2)
    lease, group = Lease(), group_name()
    members = [await enter(log, group, first.topic, lease=lease), await enter(log, group, first.topic)]
    await settle(*members)
    third = asyncio.ensure_future(enter(log, group, first.topic))
    joins, other = members
    await revoked(joins)
    joins.revoked()
    # It waits for the other one, which does not give up its partition.
    assert (await revoked(other)).partitions
    assert lease.holds()
    tampering.add("Heartbeat", error_code(UNKNOWN_MEMBER), error_code(UNKNOWN_MEMBER))
    await lost(joins)
    assert not lease.holds()
    for member in (*members, await third):
        await member.leave()


async def test_the_lease_is_over_when_the_machine_has_slept_for_the_session_timeout(log: KafkaLog) -> None:
    """The lease counts time that the event loop's clock does not, and holds again when the next heartbeat is answered."""
    (partition,) = await new_topic(log)
    slept = [0.0]
    lease = Lease(lambda: elapsed_time() + slept[0])
    member = await enter(log, group_name(), partition.topic, session_timeout_ms=30_000, lease=lease)
    await assigned(member)
    await until(lease.holds)
    slept[0] = 30.0
    assert not lease.holds()
    await until(lease.holds)
    await member.leave()


async def test_a_member_without_partitions_loses_none(log: KafkaLog, tampering: Tampering) -> None:
    """A member that is removed before it has read its assignment rejoins by itself, and no partition is given up."""
    (partition,) = await new_topic(log)
    tampering.add("Heartbeat", error_code(UNKNOWN_MEMBER))
    lease, losses = Lease(), list[bool]()
    lease.lost = lambda: losses.append(lease.holds())
    member = await enter(log, group_name(), partition.topic, lease=lease)
    await until(lambda: not tampering.left and tampering.count("JoinGroupRequest") >= 3)
    event = await assigned(member)
    await member.commit({partition: OffsetAndMetadata(1)})
    assert event.assignment.partitions == (partition,)
    assert losses == []


async def test_an_instance_does_not_fight_for_its_place(log: KafkaLog, tampering: Tampering) -> None:
    """A member that finds it taken gets an event, though it had no partitions."""
    (partition,) = await new_topic(log)
    tampering.add("JoinGroup", error_code(FENCED))
    member = await enter(log, group_name(), partition.topic)
    assert (await lost(member)).partitions == ()
    member.rejoin(b"")
    assert (await assigned(member)).assignment.partitions == (partition,)


@pytest.mark.parametrize("kind", ["Heartbeat", "JoinGroup"])
async def test_lasting_failures_are_reported(log: KafkaLog, tampering: Tampering, kind: str) -> None:
    """A caller that waits for events gets it; a rejoin tries again."""
    (partition,) = await new_topic(log)
    if kind == "JoinGroup":
        tampering.add(kind, error_code(FORBIDDEN))
    member = await enter(log, group_name(), partition.topic)
    if kind == "Heartbeat":
        await assigned(member)
        tampering.add(kind, error_code(FORBIDDEN))
    with pytest.raises(NotAuthorized):
        await soon(member.event())
    member.rejoin(b"")
    await settle(member)


async def test_unexpected_errors_are_reported(log: KafkaLog, tampering: Tampering) -> None:
    """With its cause."""
    (partition,) = await new_topic(log)
    tampering.add("SyncGroup", ZeroDivisionError("oops"))
    member = await enter(log, group_name(), partition.topic)
    with pytest.raises(LogError, match="ZeroDivisionError: oops"):
        await soon(member.event())
    member.rejoin(b"")
    await settle(member)


async def test_heartbeats_that_do_not_get_through_cost_nothing_by_themselves(
    log: KafkaLog, tampering: Tampering, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the group removes members: one that finds it again goes on."""
    (partition,) = await new_topic(log)
    member = await enter(log, group_name(), partition.topic)
    before = await assigned(member)
    tampering.add("Heartbeat", LogTimeout("no way"), Unavailable("no way"))
    await until(lambda: not tampering.left)
    beats = tampering.count("HeartbeatRequest_v3")
    await until(lambda: tampering.count("HeartbeatRequest_v3") >= beats + 2)
    await member.commit({partition: OffsetAndMetadata(1)})
    assert member.group == before.group
    assert "heartbeats to group" in caplog.text


async def test_a_leader_is_assigned_nothing_by_an_empty_answer(log: KafkaLog, tampering: Tampering) -> None:
    """Of a leader that has left a member out."""
    (partition,) = await new_topic(log)
    tampering.add("SyncGroup", setting(member_assignment=b""))
    member = await enter(log, group_name(), partition.topic)
    assert (await assigned(member)).assignment.partitions == ()


async def test_a_group_that_cannot_be_told_of_a_leave_finds_out(log: KafkaLog, tampering: Tampering, caplog: pytest.LogCaptureFixture) -> None:
    """Leaving does not fail."""
    (partition,) = await new_topic(log)
    member = await enter(log, group_name(), partition.topic)
    await assigned(member)
    tampering.add("LeaveGroup", NotAuthorized("no"))
    await soon(member.leave())
    assert "it notices after the session timeout" in caplog.text
    with pytest.raises(LogClosed):
        await member.commit({})


async def test_a_log_that_cannot_be_entered_leaves_nothing_behind(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither when it fails nor when nobody waits for it any more."""
    threads = threading.active_count()

    async def refused(_: GroupMember) -> None:
        raise NotAuthorized("no")

    async def endless(_: GroupMember) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(GroupMember, "start", refused)
        with pytest.raises(NotAuthorized):
            await enter(log, group_name(), "topic")
    assert not log._parts
    with monkeypatch.context() as patched:
        patched.setattr(GroupMember, "start", endless)
        joining = asyncio.ensure_future(enter(log, group_name(), "topic"))
        await until(lambda: threading.active_count() != threads)
        await asyncio.sleep(0)
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining
    assert not log._parts


async def test_a_join_cancelled_when_it_is_in_leaves_no_member(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that nobody has would be given partitions that nobody processes."""
    held, let, entered = threading.Event(), threading.Event(), threading.Event()
    made: list[GroupMember] = []
    real = GroupMember.start

    async def start(self: GroupMember) -> None:
        made.append(self)
        held.set()
        assert let.wait(PATIENCE_S)
        await real(self)
        entered.set()

    (partition,) = await new_topic(log)
    monkeypatch.setattr(GroupMember, "start", start)
    joining = asyncio.ensure_future(enter(log, group_name(), partition.topic))
    await until(held.is_set)
    let.set()
    assert entered.wait(PATIENCE_S)  # this loop has not heard of it
    joining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await joining
    assert made[0]._main is None
    assert not log._parts


@pytest.fixture
def coordinators(monkeypatch: pytest.MonkeyPatch) -> list[GroupMember]:
    """All that are started."""
    made: list[GroupMember] = []
    real = GroupMember.start

    async def start(self: GroupMember) -> None:
        made.append(self)
        await real(self)

    monkeypatch.setattr(GroupMember, "start", start)
    return made


async def cancelled_before_it_begins(log: KafkaLog, group: str, topic: str) -> tuple[asyncio.Future[Membership], threading.Event]:
    """Cancel a join that has not begun in its thread, which waits for the event."""
    let = threading.Event()
    log._threads.loop.call_soon_threadsafe(let.wait, 30)
    joining = asyncio.ensure_future(enter(log, group, topic))
    await asyncio.sleep(0)
    joining.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    return joining, let


async def test_a_join_cancelled_before_it_is_in_leaves_no_member(log: KafkaLog, coordinators: list[GroupMember]) -> None:
    """Before Python 3.14 the first step of its thread is not cancelled, and the group would wait for a member that never answers."""
    (partition,) = await new_topic(log)
    group = group_name()
    joining, let = await cancelled_before_it_begins(log, group, partition.topic)
    let.set()
    with pytest.raises(asyncio.CancelledError):
        await soon(joining)
    await soon(log._threads.call(asyncio.sleep(0)))  # behind whatever was asked of the thread
    assert [each for each in coordinators if each._main is not None] == []
    assert not log._parts
    member = await enter(log, group, partition.topic)
    assert (await assigned(member)).assignment.partitions == (partition,)


async def test_a_join_cancelled_twice_leaves_no_member(log: KafkaLog, coordinators: list[GroupMember]) -> None:
    """A cancelled wait for the end does not cancel the end."""
    (partition,) = await new_topic(log)
    joining, let = await cancelled_before_it_begins(log, group_name(), partition.topic)
    joining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(joining)
    let.set()
    await soon(log._threads.call(asyncio.sleep(0)))
    assert [each for each in coordinators if each._main is not None] == []


async def test_a_join_cancelled_while_the_log_is_closed_raises_the_cancellation(log: KafkaLog) -> None:
    """There is nobody left to be ended, and that is no error."""
    joining, let = await cancelled_before_it_begins(log, group_name(), "topic")
    closing = asyncio.ensure_future(log.close())
    await asyncio.sleep(0)
    let.set()
    with pytest.raises(asyncio.CancelledError):
        await soon(joining)
    await soon(closing)


async def test_a_log_that_is_closed_meanwhile_is_not_entered(kafka_broker: Broker) -> None:
    """Nobody would be there to leave."""
    log = KafkaLog(kafka_broker.bootstrap)
    await log.start()
    let = threading.Event()
    log._threads.loop.call_soon_threadsafe(let.wait, 30)
    joining = asyncio.ensure_future(enter(log, group_name(), "topic"))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(log.close())
    await asyncio.sleep(0)
    let.set()
    with pytest.raises(LogClosed):
        await soon(joining)
    await soon(closing)


async def test_errors_of_offsets_are_told(log: KafkaLog, tampering: Tampering) -> None:
    """With the group and the partition; there is no waiting for topics that nobody has."""
    (partition,) = await new_topic(log)
    nowhere = TopicPartition("nowhere", 0)
    group = group_name()
    member = await enter(log, group, partition.topic)
    await assigned(member)
    with pytest.raises(UnknownTopicOrPartition, match="nowhere-0"):
        await soon(member.commit({nowhere: OffsetAndMetadata(1)}))
    assert await member.committed([nowhere]) == {}
    assert await member.committed([]) == {}
    await member.commit({})

    def forbidden(response: Any) -> Any:
        response.topics = [(topic, [(*rest, 29, tags) for *rest, _, tags in partitions], last) for topic, partitions, last in response.topics]
        return response

    def unknown(response: Any) -> Any:
        response.topics = [(topic, [(*rest, 3, tags) for *rest, _, tags in partitions], last) for topic, partitions, last in response.topics]
        return response

    tampering.add("OffsetFetch", error_code(FORBIDDEN), forbidden, unknown)
    with pytest.raises(NotAuthorized, match=group):
        await member.committed([partition])
    with pytest.raises(NotAuthorized, match=str(partition)):
        await member.committed([partition])
    assert await member.committed([partition]) == {}
    await member.leave()
    with pytest.raises(LogClosed):
        await member.committed([partition])


async def test_a_member_of_no_generation_commits_nothing(log: KafkaLog) -> None:
    """Kafka would take it: anybody may commit for a group without members."""
    (partition,) = await new_topic(log)
    member = await enter(log, group_name(), partition.topic)
    with pytest.raises(IllegalGeneration):
        await member.commit({partition: OffsetAndMetadata(1)})


async def test_a_thread_that_has_ended_takes_no_work() -> None:
    """Ending it twice is ending it once, and one that never ran has nothing to end."""
    threads = LoopThread("test")

    async def work() -> str:
        return threading.current_thread().name

    assert await threads.call(work()) == "test"
    await threads.close()
    await threads.close()
    with pytest.raises(LogClosed):
        await threads.call(work())
    await LoopThread("idle").close()


async def test_a_thread_that_cannot_be_begun_is_begun_later(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group may be full: a joining member gets an error, each time, and waits for no loop that does not run."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    (partition,) = await new_topic(log)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="new thread"):
                await soon(enter(log, group_name(), partition.topic))
    member = await enter(log, group_name(), partition.topic)
    assert (await assigned(member)).assignment.partitions == (partition,)


async def test_late_records_change_nothing(log: KafkaLog) -> None:
    """Answers to a rebalance that is over, and news for a member that has left."""
    (partition,) = await new_topic(log)
    member = await log.join(
        group_name(),
        NewMember(client_id="c", topics=[partition.topic], user_data=b"", assignor=by_turns, session_timeout_ms=3_000, rebalance_timeout_ms=30_000),
    )
    event = await assigned(member)
    coordinator = member._member
    assert coordinator is not None
    member._call_member(lambda coordinator: coordinator.continue_rebalance(-1, b"old"))
    member.rejoin(b"")
    (after,) = await settle(member)
    assert after.assignment.partitions == event.assignment.partitions
    await member.leave()
    member._call_member(lambda coordinator: coordinator.continue_rebalance(7))
    member.post(member.on_lost, 7)
    await asyncio.sleep(0)
    with pytest.raises(LogClosed):
        await member.event()


async def test_a_loop_that_is_gone_is_told_nothing(log: KafkaLog) -> None:
    """The other thread hears that nobody is there."""

    async def make() -> KafkaMembership:
        new = NewMember(client_id="c", topics=[], user_data=b"", assignor=by_turns, session_timeout_ms=1, rebalance_timeout_ms=1)
        return KafkaMembership(log._client, log._threads, "group", new, ends=lambda *_: None)

    member = await asyncio.to_thread(asyncio.run, make())
    assert not member.is_open()
    with pytest.raises(LogClosed):
        member.post(member.on_revoke, 1)
