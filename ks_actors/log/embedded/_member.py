"""A place in a group, for its owner and for the group."""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Protocol, final

from ks_actors._errors import LogClosed
from ks_actors.log._lease import Lease
from ks_actors.log._port import BaseMembership
from ks_actors.log._types import Assigned, GroupMetadata, Lost, Revoked

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ks_actors.log._port import Assignor, MembershipEvent, NewMember
    from ks_actors.log._types import MemberAssignment, OffsetAndMetadata
    from ks_actors.log.embedded._faults import Faults
    from ks_actors.records import TopicPartition


class GroupOfMember(Protocol):
    """The group of a member, as the member calls it; see Group."""

    group_id: str

    def enter(self, member: EmbeddedMembership) -> None:
        """Add a member, if it is new, and rebalance."""
        ...

    def proceed(self) -> None:
        """Complete the rebalance soon, unless it still waits for a member."""
        ...

    def committed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return all committed offsets."""
        ...

    def commit(
        self, who: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Commit offsets of a member.

        Raises IllegalGeneration, UnknownTopicOrPartition, StorageFull, and LogError.
        """
        ...

    def park(self, member: EmbeddedMembership) -> None:
        """Keep the place of a leaving member until its session timeout is over."""
        ...

    def remove(self, member: EmbeddedMembership) -> None:
        """Remove a member, if it is one."""
        ...

    def expire(self, member: EmbeddedMembership) -> None:
        """Expel a member, as if its session had timed out."""
        ...


@final
class EmbeddedMembership(BaseMembership):
    """A member of a group in this process. It lives until it is ended, without heartbeats.

    Unread events that have been superseded are dropped: an Assigned that was not read when the next
    rebalance begins was never in effect. After Lost the member is out; `rejoin` takes it back in
    under a new id, and then Assigned is the next event.
    """

    def __init__(
        self,
        group: GroupOfMember,
        faults: Faults,
        new: NewMember,
        *,
        closed: Callable[[EmbeddedMembership], None],
    ) -> None:
        self.client_id: str = new.client_id
        self.instance_id: str | None = new.instance_id
        self.topics: frozenset[str] = frozenset(new.topics)
        self.user_data: bytes = new.user_data
        self.assignor: Assignor = new.assignor
        self.session_timeout_ms: int = new.session_timeout_ms
        self.rebalance_timeout_ms: int = new.rebalance_timeout_ms
        self.member_id: str = ""
        # Whether the group waits for this member to give up its partitions.
        self.awaited: bool = False
        # Whether the member is absent, and only its place is kept.
        self.away: bool = False
        # The group's assignment until the next rebalance: a replacement for this member gets the
        # same.
        self.given: MemberAssignment | None = None
        self._group: GroupOfMember = group
        self._faults: Faults = faults
        self._lease: Lease = new.lease or Lease()
        self._on_close = closed
        self._seen: GroupMetadata = GroupMetadata(group.group_id, -1, "")
        # Partitions of the last Assigned that was read; None when none is in effect.
        self._owned: tuple[TopicPartition, ...] | None = None
        self._events: deque[MembershipEvent | Exception] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    @property
    def group(self) -> GroupMetadata:
        """The group as of the last read event."""
        return self._seen

    async def event(self) -> MembershipEvent:
        """Wait for the next event of the membership. One call may wait at a time.

        Raises LogClosed after `leave`. On the leader, raises the assignor's error: then the group's
        members have no partitions until one of them rejoins, comes or leaves.
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
            # Only an assignment that was read counts: an unread one holds up no rebalance.
            self._owned = event.assignment.partitions
        return event

    def _check(self) -> None:
        if self._closed:
            raise LogClosed(
                f"{self.client_id} has left group {self._group.group_id!r}, or the log is closed"
            )

    def join(self) -> None:
        """Enter the group."""
        self._group.enter(self)

    def expire(self) -> None:
        """Leave the group, as if the session had timed out."""
        self._group.expire(self)

    def revoked(
        self, user_data: bytes | None = None, topics: Collection[str] | None = None, /
    ) -> None:
        """Confirm that the partitions of the last Revoked are given up.

        Does nothing when the group does not wait for that.
        """
        if self.awaited:
            if user_data is not None:
                self.user_data = user_data
            if topics is not None:
                self.topics = frozenset(topics)
            self.awaited = False
            self._owned = None
            self._group.proceed()

    def rejoin(self, user_data: bytes, topics: Collection[str] | None = None, /) -> None:
        """Ask for a new assignment, with new user data, and new topics if any are given.

        Raises LogClosed.
        """
        self._check()
        self.user_data = user_data
        if topics is not None:
            self.topics = frozenset(topics)
        self._group.enter(self)

    async def committed(
        self, partitions: Iterable[TopicPartition], /
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets, without partitions that have none.

        Commits take effect at once, so there are none to wait for.
        """
        self._check()
        # As with a real log, others run before the answer arrives.
        await asyncio.sleep(0)
        await self._faults.wait("committed")
        self._faults.before("committed")
        offsets = self._group.committed()
        return {partition: offsets[partition] for partition in partitions if partition in offsets}

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> None:
        """Commit offsets outside of transactions, all or none.

        Raises IllegalGeneration, UnknownTopicOrPartition, StorageFull, LogClosed.
        """
        self._check()
        await self._faults.wait("commit_offsets")
        self._faults.before("commit_offsets")
        self._group.commit(self._seen, offsets)
        await asyncio.sleep(0)
        self._faults.after("commit_offsets")

    async def leave(self) -> None:
        """Leave the group at once. Does nothing when already closed."""
        await self._say_goodbye(stay=False)

    async def close(self) -> None:
        """Close the membership.

        With an instance id the group keeps its place and its partitions, in case it returns within
        the session timeout; other members leave.
        """
        await self._say_goodbye(stay=self.instance_id is not None)

    async def _say_goodbye(self, *, stay: bool) -> None:
        if not (stay or self._closed):
            try:
                await self._faults.wait("leave")
                self._faults.before("leave")
            except BaseException:
                # The group has not received it: it waits for this member until its session is over.
                self._end(stay=True)
                raise
        self._end(stay=stay)

    def shut(self) -> None:
        """End with the log, and so with the group."""
        self._end(stay=False)

    def _end(self, *, stay: bool) -> None:
        if self._closed:
            return
        self._closed = True
        self._lease.end()
        # Nothing from before the end may be handled after it.
        self._events.clear()
        if stay:
            self._group.park(self)
        else:
            self._group.remove(self)
        self._wake()
        self._on_close(self)

    # The group calls the methods below.

    def entered(self, member_id: str) -> None:
        """Become a new member."""
        self.member_id = member_id

    def revoke(self) -> None:
        """Give up all partitions on request of the group.

        An unread assignment is dropped without a request, and an absent member holds no partitions.
        """
        # From now on no member may take over the assignment of the last generation.
        self.given = None
        self._drop_unread(Assigned)
        # Without partitions there is nothing to give up, and the rebalance need not wait.
        if self._owned is not None and not self.away:
            self.awaited = True
            self._tell(Revoked(self._owned))

    def assign(self, generation: int, assignment: MemberAssignment) -> None:
        """Receive partitions."""
        self.given = assignment
        # Here a lease ends only with the membership.
        self._lease.extend(inf)
        self._tell(
            Assigned(GroupMetadata(self._group.group_id, generation, self.member_id), assignment)
        )

    def lose(self, *, fenced: bool = False) -> None:
        """Leave the group by force.

        With `fenced`, a member with the same instance id has replaced this one.
        """
        self._drop_unread(Assigned, Revoked)
        owned, self._owned = self._owned, None
        self.awaited = False
        self._lease.end()
        self._lease.lost()
        self._tell(Lost(owned or (), fenced))

    def fail(self, error: Exception) -> None:
        """Receive an error."""
        self._tell(error)

    def _drop_unread(self, *kinds: type[MembershipEvent]) -> None:
        self._events = deque(event for event in self._events if not isinstance(event, kinds))

    def _tell(self, event: MembershipEvent | Exception) -> None:
        if self._closed:
            return
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
