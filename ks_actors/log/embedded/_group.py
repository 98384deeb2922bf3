"""Groups: members, generations and rebalances."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, final

from ks_actors._errors import IllegalGeneration
from ks_actors.log._types import MemberAssignment, MemberInfo
from ks_actors.log.embedded._refusals import check_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ks_actors.log._types import GroupMetadata, OffsetAndMetadata
    from ks_actors.log.embedded._broker import Broker
    from ks_actors.log.embedded._member import EmbeddedMembership
    from ks_actors.records import TopicPartition

_NOTHING = MemberAssignment(())


@final
class Group:
    """The members of a group, in the order of their arrival; the first present member leads.

    A rebalance asks all members to release their partitions, and waits for them. If a member keeps
    its partitions beyond the rebalance timeout, it is expelled. Then the generation advances and
    the leader assigns. Until then the members have the old generation, so that they can commit
    their work. If a member with an instance id is absent, it stays in the group for a session
    timeout: the leader continues to assign partitions to it.
    """

    def __init__(self, group_id: str, broker: Broker, member_numbers: Iterator[int]) -> None:
        self.group_id: str = group_id
        self.generation: int = 0
        self._broker: Broker = broker
        self._numbers: Iterator[int] = member_numbers
        self._members: dict[str, EmbeddedMembership] = {}
        self._rebalancing = False
        self._counts: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._completion: asyncio.Handle | None = None
        self._absences: dict[EmbeddedMembership, asyncio.TimerHandle] = {}

    def committed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return all committed offsets."""
        return self._broker.offsets.get(self.group_id, {})

    @property
    def members(self) -> Mapping[str, EmbeddedMembership]:
        """The members by id, including absent members."""
        return self._members

    def commit(
        self, who: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Commit offsets of a member.

        Raises IllegalGeneration, UnknownTopicOrPartition, StorageFull, and LogError, also for
        metadata that is too long.
        """
        self.check(who, offsets)
        self._broker.commit_offsets(self.group_id, offsets)

    def check(
        self, who: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Raise IllegalGeneration for a caller that may not commit at this moment.

        Raises UnknownTopicOrPartition for offsets that cannot be committed. A group without members
        takes commits from any caller without membership: an empty member id and a negative
        generation.
        """
        for partition in offsets:
            self._broker.partition(partition)
        check_offsets(self.group_id, offsets)
        # As a broker does: tools commit for groups without members.
        if not self._members and not who.member_id and who.generation < 0:
            return
        if who.member_id not in self._members:
            raise IllegalGeneration(
                f"group {self.group_id!r} does not know member {who.member_id!r}: it must join "
                "again"
            )
        if who.generation != self.generation:
            raise IllegalGeneration(
                f"group {self.group_id!r} is in generation {self.generation}, but member "
                f"{who.member_id} is of generation {who.generation}: it must join again"
            )

    def enter(self, member: EmbeddedMembership) -> None:
        """Add a member, if it is new, and rebalance.

        If another member has the same instance id, the new member replaces it, without a rebalance.
        """
        # A member that is already in the group only requests a rebalance.
        if self._members.get(member.member_id) is not member:
            member.entered(f"{member.client_id}-{self._broker.incarnation}-{next(self._numbers)}")
            former = next(
                (
                    each
                    for each in self._members.values()
                    if each.instance_id and each.instance_id == member.instance_id
                ),
                None,
            )
            if former is not None:
                self._replace(former, member)
                # As a broker does: whatever the new member reports, it gets the same assignment.
                if not self._rebalancing and former.given is not None:
                    member.assign(self.generation, former.given)
                    return
            else:
                self._members[member.member_id] = member
        self._rebalance()

    def _replace(self, former: EmbeddedMembership, member: EmbeddedMembership) -> None:
        self._members = {
            each.member_id: each
            for each in (member if each is former else each for each in self._members.values())
        }
        # Stop the timer of the old member: it must not expel the member that has replaced it.
        self._forget(former)
        former.lose(fenced=True)

    def park(self, member: EmbeddedMembership) -> None:
        """Keep a closed member in the group until its session timeout is over."""
        if self._members.get(member.member_id) is member:
            member.away, member.awaited = True, False
            loop = asyncio.get_running_loop()
            self._absences[member] = loop.call_later(
                member.session_timeout_ms / 1000, self.expire, member
            )
            # The rebalance may have waited only for this member.
            if self._rebalancing:
                self.proceed()

    def remove(self, member: EmbeddedMembership) -> None:
        """Remove a member; do nothing if it is not in the group."""
        if self._members.get(member.member_id) is member:
            del self._members[member.member_id]
            self._forget(member)
            self._rebalance()

    def _forget(self, member: EmbeddedMembership) -> None:
        timer = self._absences.pop(member, None)
        if timer is not None:
            timer.cancel()

    def expire(self, member: EmbeddedMembership) -> None:
        """Expel a member, as if its session had timed out."""
        if self._members.get(member.member_id) is member:
            self._expel(member)
            self._rebalance()

    def bury(self, client_id: str) -> None:
        """Expel all members of a client id. The caller has to rebalance afterwards."""
        for member in tuple(self._members.values()):
            if member.client_id == client_id:
                self._expel(member)

    def _expel(self, member: EmbeddedMembership) -> None:
        del self._members[member.member_id]
        self._forget(member)
        member.lose()

    def topics_changed(self, names: set[str]) -> None:
        """Rebalance if a topic of the members was created or deleted, or has grown."""
        if (
            # As with a broker: only members look at topics.
            self._leader() is not None
            and any(names & member.topics for member in self._members.values())
            and self._count() != self._counts
        ):
            self._rebalance()

    def _count(self) -> dict[str, int]:
        topics = sorted(
            frozenset[str]().union(*(member.topics for member in self._members.values()))
        )
        return {
            topic: len(self._broker.topics[topic].partitions)
            for topic in topics
            if topic in self._broker.topics
        }

    def _rebalance(self) -> None:
        # Absent members stay in the group, but cannot lead.
        if self._leader() is None:
            # The next member that joins makes the group assign.
            self.stop()
            for member in self._members.values():
                # Nobody leads, so the last assignment may be outdated when the next member joins.
                member.given = None
            return
        if not self._rebalancing:
            self._rebalancing = True
            for member in self._members.values():
                # Ask all members: only the leader knows which members will keep all partitions.
                member.revoke()
            # The slowest member's timeout counts, as with Kafka: the others wait for it.
            timeout_ms = max(member.rebalance_timeout_ms for member in self._members.values())
            self._timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, self._time_is_up)
        self.proceed()

    def proceed(self) -> None:
        """Complete the rebalance soon, unless it still waits for a member.

        The delay lets all members that come at the same time take part.
        """
        if self._leader() is None:
            self._rebalance()
        elif self._completion is None and not self._awaited():
            self._completion = asyncio.get_running_loop().call_soon(self._complete)

    def _leader(self) -> EmbeddedMembership | None:
        return next((member for member in self._members.values() if not member.away), None)

    def _awaited(self) -> list[EmbeddedMembership]:
        return [member for member in self._members.values() if member.awaited]

    def _time_is_up(self) -> None:
        # Expel members that still have their partitions: before, no other member may get them.
        for member in self._awaited():
            self._expel(member)
        self.proceed()

    def _complete(self) -> None:
        self.stop()
        leader = self._leader()
        if leader is None:
            return
        # Advance before the assignor runs: after its failure no member may commit in the old
        # generation.
        self.generation += 1
        self._counts = self._count()
        members = list(self._members.values())
        infos = [
            MemberInfo(member.member_id, member.topics, member.user_data) for member in members
        ]
        try:
            # Pass a copy, since the assignor is user code.
            assignments = leader.assignor(infos, dict(self._counts))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the leader's
            leader.fail(error)
            return
        for member in members:
            member.assign(self.generation, assignments.get(member.member_id, _NOTHING))

    def stop(self) -> None:
        """End the rebalance, without an assignment."""
        self._rebalancing = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._completion is not None:
            self._completion.cancel()
            self._completion = None

    def end(self) -> None:
        """Stop all timers."""
        self.stop()
        for member in tuple(self._absences):
            self._forget(member)


@final
class Groups:
    """All groups of a log. A group is created with its first member, and stays."""

    def __init__(self, broker: Broker) -> None:
        self._broker: Broker = broker
        self._groups: dict[str, Group] = {}
        self._numbers: Iterator[int] = count(1)

    def get(self, group_id: str) -> Group:
        """Return a group."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(group_id, self._broker, self._numbers)
        return group

    def ids(self) -> list[str]:
        """Return the ids of the groups that have members or offsets, in order."""
        return sorted(
            {name for name, group in self._groups.items() if group.members}
            | {name for name, offsets in self._broker.offsets.items() if offsets}
        )

    def check_commit(
        self, who: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Raise an error if a member may not commit these offsets at this moment.

        The errors are IllegalGeneration and UnknownTopicOrPartition.
        """
        self.get(who.group_id).check(who, offsets)

    def topics_changed(self, names: set[str]) -> None:
        """Rebalance the groups with these topics."""
        for group in self._groups.values():
            group.topics_changed(names)

    def stop(self) -> None:
        """Stop all timers."""
        for group in self._groups.values():
            group.end()
