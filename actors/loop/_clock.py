"""The clock and timers that the framework needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVarTuple, Unpack

if TYPE_CHECKING:
    from collections.abc import Callable

Ts = TypeVarTuple("Ts")


class TimerHandle(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""
        ...


class Clock(Protocol):
    """The two time methods of an event loop; the test kit has its own clock."""

    def time(self) -> float:
        """Return seconds on a monotonic clock."""
        ...

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts
    ) -> TimerHandle:
        """Call `callback` in `delay` seconds."""
        ...
