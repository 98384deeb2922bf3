"""Groups for operators: look up and change members and offsets from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from ks_actors.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ks_actors.log._types import OffsetAndMetadata


class GroupMember(msgspec.Struct, frozen=True):
    """A member of a group; `host` is empty for a member in this process.

    `partitions` is the member's assignment in the group; None while a rebalance makes it unknown.
    `user_data` is what the member has told the group.
    """

    member_id: str
    client_id: str
    host: str = ""
    partitions: frozenset[TopicPartition] | None = None
    user_data: bytes = b""

    def __str__(self) -> str:
        return f"{self.client_id} at {self.host.removeprefix('/')}" if self.host else self.client_id


@runtime_checkable
class TellsGroups(Protocol):
    """A log with lookups of groups.

    Each call ends by the log's own deadline, in a LogError that names the awaited operation.
    """

    async def group_members(self, group_id: str, /) -> Sequence[GroupMember]:
        """Return the members of a group; none when there is no such group."""
        ...

    async def group_offsets(self, group_id: str, /) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return all offsets that a group has committed.

        Waits for open transactions that are about to change the offsets.
        """
        ...


@runtime_checkable
class ManagesGroups(TellsGroups, Protocol):
    """A log that also lets an operator change its groups."""

    async def group_ids(self) -> Sequence[str]:
        """Return the ids of all groups with members or committed offsets that this user may see."""
        ...

    async def remove_members(self, group_id: str, members: Iterable[GroupMember], /) -> None:
        """Remove members from a group; ignore members that have left.

        A process that still runs may join again.
        """
        ...

    async def set_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], /
    ) -> None:
        """Commit offsets for a group without members, all in one request.

        Raises IllegalGeneration when the group has members.
        """
        ...
