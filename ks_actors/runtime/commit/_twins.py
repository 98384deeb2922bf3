"""Two instances with one process id, which fence each other all the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ks_actors._errors import StateLocked

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors._errors import Fenced

_MOST_FENCINGS: Final = 5


@final
class Twins:
    """The count of commits in a row that were refused because another producer had the id.

    A single refusal is ordinary: others have ended the transaction of a member that seemed to be
    dead. Several without a commit in between mean that another instance runs with the same process
    id. That happens after a copy of a state directory, or of a whole machine. `forget` removes the
    process id of this instance, so that its next start has another id.
    """

    def __init__(self, forget: Callable[[], None]) -> None:
        self._forget = forget
        self._in_a_row: int = 0

    def committed(self) -> None:
        """Note a commit."""
        self._in_a_row = 0

    def fenced(self, error: Fenced) -> StateLocked | None:
        """Note a refused commit; return the error of the instance if there must be a twin."""
        self._in_a_row += 1
        if self._in_a_row < _MOST_FENCINGS:
            return None
        self._in_a_row = 0
        self._forget()
        found = StateLocked(
            f"another instance runs with the process id of this one: {_MOST_FENCINGS} commits in a "
            "row were refused, as another producer had taken the transactional id. One of the two "
            "state directories is a copy of the other. Start this instance again: it then has a "
            f"process id of its own ({error})"
        )
        found.__cause__ = error
        return found
