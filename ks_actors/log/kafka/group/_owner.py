"""The calls of the group protocol to a membership."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ks_actors._errors import LogError
    from ks_actors.log._types import GroupMetadata, MemberAssignment


class Owner(Protocol):
    """The receiver of membership events, on the owner's loop. No method blocks."""

    def on_revoke(self, turn: int) -> None:
        """Release all partitions; then call `let_go(turn)`."""
        ...

    def on_joined(self, group: GroupMetadata) -> None:
        """Note the generation that the member has joined; its assignment comes later."""
        ...

    def on_assigned(self, group: GroupMetadata, assignment: MemberAssignment) -> None:
        """Take these partitions."""
        ...

    def on_lost(self, *, fenced: bool) -> None:
        """Note the loss of the membership; `rejoin` joins again."""
        ...

    def on_check(self) -> None:
        """Report by `owner_is_well` how long there has been no progress."""
        ...

    def on_failed(self, error: LogError) -> None:
        """Note the end of the membership by a lasting error; `rejoin` tries again."""
        ...

    def on_not_assigned(self, error: Exception) -> None:
        """Note, as the leader, that no member gets partitions: the assignor failed or hangs."""
        ...
