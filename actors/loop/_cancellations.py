"""Tell a cancellation from its repetitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    import asyncio


@final
class Cancellations:
    """The cancellations of one wait.

    A cancel scope of anyio cancels its tasks again in each turn of the loop until they leave the
    scope, with a message that names the scope. Such a repetition is not a more urgent request.
    """

    __slots__ = ("_messages",)

    def __init__(self) -> None:
        self._messages: set[str] = set()

    def is_new(self, error: asyncio.CancelledError) -> bool:
        """Return whether a cancellation is new, not a repetition; always True without a message."""
        message = str(error)
        if message in self._messages:
            return False
        if message:
            self._messages.add(message)
        return True
