"""A membership of a Kafka group."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

from ks_actors._errors import LogClosed
from ks_actors.log._lease import Lease
from ks_actors.log._port import BaseMembership
from ks_actors.log._types import Assigned, GroupMetadata, Lost, MemberAssignment, Revoked
from ks_actors.log.kafka.admin import commit_offsets, fetch_committed
from ks_actors.log.kafka.client import KafkaClient
from ks_actors.log.kafka.group._group_member import GroupMember
from ks_actors.system import current_member

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ks_actors._errors import LogError
    from ks_actors.log._port import MembershipEvent, NewMember
    from ks_actors.log._types import OffsetAndMetadata
    from ks_actors.log.kafka.client import LoopThread
    from ks_actors.records import TopicPartition


async def join_group(
    client: KafkaClient,
    bootstrap_servers: str,
    threads: LoopThread,
    group_id: str,
    new: NewMember,
    *,
    ends: Callable[[KafkaMembership, asyncio.Task[None]], None],
) -> KafkaMembership:
    """Join a group.

    `client` is for offsets. The membership has its own client in the thread, which starts with the
    brokers that `client` knows. The membership reports group events by `event`. At the end it calls
    `ends` with the closing task, which continues if the caller is cancelled. Raises LogTimeout and
    NotAuthorized only if no brokers are known yet.
    """
    member = KafkaMembership(client, threads, group_id, new, ends=ends)

    def make() -> GroupMember:
        own = KafkaClient(bootstrap_servers, client.options, client_id=new.client_id)
        own.begin_like(client)
        return GroupMember(own, member, member.post, member.is_open, group_id=group_id, new=new)

    await member.start(make)
    return member


@final
class KafkaMembership(BaseMembership):
    """A group membership with heartbeats that continue while this loop is busy.

    Unread events that are obsolete are dropped: an Assigned that was not read before the next
    rebalance was never in effect. Lost may come at any time, even during a rebalance. After Lost
    the member is out of the group; `rejoin` joins again, and then Assigned is the next event. With
    an instance id the group knows the member by that id, and another member with the same id
    replaces it. The assignor is called in a thread of its own.
    """

    def __init__(
        self,
        client: KafkaClient,
        threads: LoopThread,
        group_id: str,
        new: NewMember,
        *,
        ends: Callable[[KafkaMembership, asyncio.Task[None]], None],
    ) -> None:
        self.client_id: str = new.client_id
        self.instance_id: str | None = new.instance_id
        self._client: KafkaClient = client
        self._threads: LoopThread = threads
        self._stuck: Callable[[], float] | None = new.stuck
        self._lease: Lease = new.lease or Lease()
        self._ends: Callable[[KafkaMembership, asyncio.Task[None]], None] = ends
        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._member: GroupMember | None = None
        self._seen: GroupMetadata = GroupMetadata(group_id, -1, "")
        # The generation that the member has joined, whose assignment may still be on its way.
        self._joined: GroupMetadata = self._seen
        # Partitions of the last Assigned that was read; None when none is in effect.
        self._owned: tuple[TopicPartition, ...] | None = None
        # Whether an Assigned was read since the member joined: the owner may rely on the
        # membership.
        self._had: bool = False
        # The rebalance that waits for `revoked`.
        self._awaited: int | None = None
        self._events: deque[MembershipEvent | LogError | Exception] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        self._ending: asyncio.Task[None] | None = None

    async def start(self, make: Callable[[], GroupMember]) -> None:
        """Join the group."""

        async def enter() -> None:
            made = make()
            try:
                await made.start()
            except BaseException:
                # If the member has joined without knowing it, the session timeout removes it.
                await made.end(leave=False)
                raise
            self._member = made

        try:
            await self._threads.call(enter())
        except BaseException:
            # When this wait is cancelled, the start may be complete, or may still complete: at
            # least its first step runs.
            await self._end(leave=True)
            raise

    @property
    def group(self) -> GroupMetadata:
        """The group as of the last event that was read."""
        return self._seen

    @property
    def committing(self) -> GroupMetadata:
        """The group to name in the commit of a transaction, with its newest known generation.

        When all members have joined the next generation, the group refuses the previous one, even
        before the assignment. Until the assignment the member has the same partitions as before:
        the assignor does not take them away. A member that has lost its partitions keeps the
        generation in which it had them.
        """
        stays = self._had and self._joined.member_id == self._seen.member_id
        return self._joined if stays else self._seen

    async def event(self) -> MembershipEvent:
        """Wait for the next event of the membership. Only one call may wait at a time.

        Raises LogClosed after `leave`. On the leader, raises the assignor's error; the members then
        have no partitions until a member rejoins, joins or leaves. Raises NotAuthorized and
        LogError when the group rejects the member: `rejoin` tries again.
        """
        while not self._events:
            self._check()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        event = self._events.popleft()
        if isinstance(event, Exception):
            raise event
        if isinstance(event, Assigned):
            self._seen = event.group
            # Only an assignment that was read counts: for an unread one no rebalance waits.
            self._owned = event.assignment.partitions
            self._had = True
        return event

    def _check(self) -> None:
        if self._closed:
            raise LogClosed(
                f"{self.client_id} has left group {self._seen.group_id!r}, or the log is closed"
            )

    def revoked(
        self, user_data: bytes | None = None, topics: Collection[str] | None = None, /
    ) -> None:
        """Report that the partitions of the last Revoked are released.

        Does nothing unless a rebalance waits for this report.
        """
        if self._awaited is not None:
            # Cleared before the call: a second `revoked` must not release a later rebalance.
            turn, self._awaited = self._awaited, None
            self._owned = None
            self._call_member(
                lambda coordinator: coordinator.continue_rebalance(turn, user_data, topics)
            )

    def rejoin(self, user_data: bytes, topics: Collection[str] | None = None, /) -> None:
        """Ask for a new assignment, with new user data, and new topics if given.

        Revoked is the next event if the member has partitions. Raises LogClosed.
        """
        self._check()
        self._call_member(lambda coordinator: coordinator.rejoin(user_data, topics))

    async def committed(
        self, partitions: Iterable[TopicPartition], /
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets, without partitions that have no offset.

        Waits for open transactions. Raises LogTimeout.
        """
        self._check()
        return await fetch_committed(self._client, self._seen.group_id, partitions)

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> None:
        """Commit offsets outside of transactions.

        Raises IllegalGeneration, UnknownTopicOrPartition, LogTimeout, LogClosed.
        """
        self._check()
        await commit_offsets(self._client, self._seen, self.instance_id, offsets)

    async def leave(self) -> None:
        """Leave the group at once, even with an instance id. A second call does nothing."""
        await self._end(leave=True)

    async def close(self) -> None:
        """Close.

        A member with an instance id keeps its place and partitions for its return, and so does a
        process that its supervisor closes to start it again; others leave.
        """
        process = current_member()
        returns = process is not None and process.returns
        await self._end(leave=self.instance_id is None and not returns)

    async def _end(self, *, leave: bool) -> None:
        if self._ending is None:
            self._closed = True
            # Events from before the end must not be handled after the end.
            self._events.clear()
            self._wake()
            # Use a task: if the caller is cancelled, the member must still leave the group.
            self._ending = asyncio.create_task(
                self._end_member(leave=leave), name=f"{self.client_id} leaves"
            )
            self._ends(self, self._ending)
        # A cancelled `leave` must still end the member, or its heartbeats would go on.
        await asyncio.shield(self._ending)

    async def _end_member(self, *, leave: bool) -> None:
        # A thread that has not started has no coordinator, and the end of the thread also ends the
        # coordinator.
        if self._threads.running:
            with suppress(LogClosed):
                await self._threads.call(self._end_there(leave=leave))

    async def _end_there(self, *, leave: bool) -> None:
        # Only code in the thread knows the coordinator. This runs after the first step of `enter`,
        # and after the cancellation of its later steps.
        coordinator, self._member = self._member, None
        if coordinator is not None:
            await coordinator.end(leave=leave)

    # --- between the loops ------------------------------------------------------------------------

    def _call_member(self, words: Callable[[GroupMember], None]) -> None:
        if self._member is not None and not self._closed:
            self._threads.loop.call_soon_threadsafe(words, self._member)

    def post(self, call: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call on the owner's loop; called on the other loop."""
        try:
            # The owner's state belongs to its own loop, and this runs in the thread of heartbeats.
            self._loop.call_soon_threadsafe(self._called, call, arguments)
        except RuntimeError as error:
            # An owner that vanished without `close` must not keep partitions from others.
            raise LogClosed("the event loop of this membership has ended") from error

    def is_open(self) -> bool:
        """Tell whether the owner's loop is open; called on the other loop."""
        return not self._loop.is_closed()

    def _called(self, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if not self._closed:
            call(*arguments)

    def on_revoke(self, turn: int) -> None:
        """Request the release of all partitions; drop an assignment that was never read."""
        self._drop_unread(Assigned)
        # Without partitions to release, the rebalance continues without the owner.
        if self._owned is None:
            self._call_member(lambda coordinator: coordinator.continue_rebalance(turn))
        else:
            self._awaited = turn
            self._tell(Revoked(self._owned))

    def on_joined(self, group: GroupMetadata) -> None:
        """Note the generation, for transactions that are committed before the assignment."""
        self._joined = group

    def on_assigned(self, group: GroupMetadata, assignment: MemberAssignment) -> None:
        """Report new partitions."""
        self._tell(Assigned(group, assignment))

    def on_lost(self, *, fenced: bool) -> None:
        """Report the loss of the membership.

        A member that never had partitions rejoins at once, unless it was fenced.
        """
        self._drop_unread(Assigned, Revoked)
        owned, self._owned, self._awaited = self._owned, None, None
        had, self._had = self._had, False
        if not had and not fenced:
            # The owner did nothing under this membership, so no pending record depends on it.
            self._call_member(lambda coordinator: coordinator.rejoin())
        else:
            # End the lease at once, before the event is read: output must stop as soon as the group
            # may give the partitions to others.
            self._lease.lost()
            self._tell(Lost(owned or (), fenced))

    def on_check(self) -> None:
        """Report this loop's progress to the coordinator."""
        stuck = 0.0 if self._stuck is None else self._stuck()
        self._call_member(lambda coordinator: coordinator.owner_is_well(stuck))

    def on_failed(self, error: LogError) -> None:
        """Report an error that ends the membership."""
        self._lease.lost()
        self._tell(error)

    def on_not_assigned(self, error: Exception) -> None:
        """Report the assignor's error: no member gets partitions."""
        self._tell(error)

    def _drop_unread(self, *kinds: type[MembershipEvent]) -> None:
        self._events = deque(event for event in self._events if not isinstance(event, kinds))

    def _tell(self, event: MembershipEvent | Exception) -> None:
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
