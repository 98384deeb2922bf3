"""Time, as the framework sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVarTuple, Unpack

if TYPE_CHECKING:
    from collections.abc import Callable

Ts = TypeVarTuple("Ts")


class TimerHandle(Protocol):
    """A call that is due."""

    def cancel(self) -> None:
        """Keep the call from being made."""
        ...


class Clock(Protocol):
    """The two methods of an event loop that deal with time; a test kit brings its own."""

    def time(self) -> float:
        """Return seconds on a clock that never goes back."""
        ...

    def call_later(self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> TimerHandle:
        """Call `callback` in `delay` seconds."""
        ...
