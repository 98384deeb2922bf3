"""What a membership is told by the protocol of its group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ks_actors._errors import LogError
    from ks_actors.log._types import GroupMetadata, MemberAssignment


class Owner(Protocol):
    """Who is told what happens; on the owner's loop. None of these blocks."""

    def on_revoke(self, turn: int) -> None:
        """Let go of everything; then `let_go(turn)`."""
        ...

    def on_assigned(self, group: GroupMetadata, assignment: MemberAssignment) -> None:
        """Have these."""
        ...

    def on_lost(self, *, fenced: bool) -> None:
        """Be thrown out; `rejoin` goes back in."""
        ...

    def on_look(self) -> None:
        """Say how long there has been no progress: `heard`."""
        ...

    def on_failed(self, error: LogError) -> None:
        """Be out for a reason that will not go away; `rejoin` tries again."""
        ...

    def on_not_assigned(self, error: Exception) -> None:
        """Hear, as the leader, why nobody gets partitions: the assignor has raised this, or does not return."""
        ...
