"""A membership of a group: the methods for its owner, and the methods for the group."""

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
        """Keep a closed member in the group until its session timeout is over."""
        ...

    def remove(self, member: EmbeddedMembership) -> None:
        """Remove a member; do nothing if it is not in the group."""
        ...

    def expire(self, member: EmbeddedMembership) -> None:
        """Expel a member, as if its session had timed out."""
        ...


@final
class EmbeddedMembership(BaseMembership):
    """A member of a group in this process. It has no heartbeats, and lives until it is ended.

    Unread events that are obsolete are dropped: an Assigned that was not read when the next
    rebalance begins was never in effect. After Lost the member is not in the group; `rejoin` joins
    again with a new id, and then Assigned is the next event.
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
        # Whether the group waits for this member to release its partitions.
        self.awaited: bool = False
        # Whether the member is absent: it was closed, but may return within the session timeout.
        self.away: bool = False
        # The group's assignment until the next rebalance: a replacement for this member gets the
        # same assignment.
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
        """Wait for the next event of the membership. Only one call may wait at a time.

        Raises LogClosed after `leave`. On the leader, raises the assignor's error: then the group's
        members have no partitions until a member rejoins, joins or leaves.
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
        """Confirm that the partitions of the last Revoked are released.

        Does nothing when the group does not wait for this confirmation.
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
        """Ask for a new assignment, with new user data, and new topics if given.

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
        """Return the group's committed offsets, without partitions that have no offset.

        Commits take effect at once, so this waits for no transaction.
        """
        self._check()
        # As with a Kafka log, let other tasks run before the answer.
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

        A member with an instance id keeps its partitions, if it returns within the session timeout;
        a member without an instance id leaves the group.
        """
        await self._say_goodbye(stay=self.instance_id is not None)

    async def _say_goodbye(self, *, stay: bool) -> None:
        if not (stay or self._closed):
            try:
                await self._faults.wait("leave")
                self._faults.before("leave")
            except BaseException:
                # The group has not received the leave, so it keeps the member until its session
                # times out.
                self._end(stay=True)
                raise
        self._end(stay=stay)

    def shut(self) -> None:
        """End the membership, since the log closes."""
        self._end(stay=False)

    def _end(self, *, stay: bool) -> None:
        if self._closed:
            return
        self._closed = True
        self._lease.end()
        # Events from before the end must not be handled after the end.
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
        """Request the owner to release all partitions.

        If the assignment is unread, it is dropped without a request; an absent member holds no
        partitions.
        """
        # From here on no member may take over the assignment of the last generation.
        self.given = None
        self._drop_unread(Assigned)
        # Without partitions to release, the rebalance need not wait for this member.
        if self._owned is not None and not self.away:
            self.awaited = True
            self._tell(Revoked(self._owned))

    def assign(self, generation: int, assignment: MemberAssignment) -> None:
        """Receive partitions."""
        self.given = assignment
        # In this log a lease ends only with the membership.
        self._lease.extend(inf)
        self._tell(
            Assigned(GroupMetadata(self._group.group_id, generation, self.member_id), assignment)
        )

    def lose(self, *, fenced: bool = False) -> None:
        """Note that the group has removed this member.

        With `fenced`, a member with the same instance id has replaced this member.
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
