"""Groups as an operator sees them: their members and offsets, asked about and changed from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ks_actors.log._types import OffsetAndMetadata
    from ks_actors.records import TopicPartition


class GroupMember(msgspec.Struct, frozen=True):
    """A member of a group; `host` is empty for a member in this process.

    `partitions` are those that the group has given it; None while a rebalance is under way, and nobody can tell.
    """

    member_id: str
    client_id: str
    host: str = ""
    partitions: frozenset[TopicPartition] | None = None

    def __str__(self) -> str:
        return f"{self.client_id} at {self.host.removeprefix('/')}" if self.host else self.client_id


@runtime_checkable
class TellsGroups(Protocol):
    """A log that can be asked about groups. Each call ends by the log's own deadline, in a LogError that says what it waited for."""

    async def group_members(self, group_id: str, /) -> Sequence[GroupMember]:
        """Return the members of a group; none when there is no such group."""
        ...

    async def group_offsets(self, group_id: str, /) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return all that a group has committed. Waits for open transactions that are about to change it."""
        ...


@runtime_checkable
class ManagesGroups(TellsGroups, Protocol):
    """A log whose groups can be changed by an operator, too."""

    async def group_ids(self) -> Sequence[str]:
        """Return the ids of all groups that have members or committed offsets, as far as this user may see them."""
        ...

    async def remove_members(self, group_id: str, members: Iterable[GroupMember], /) -> None:
        """Make members leave; a member that has left already does no harm. A process that still runs may join again."""
        ...

    async def set_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> None:
        """Commit offsets for a group without members, all in one request. Raises IllegalGeneration when the group has members."""
        ...
