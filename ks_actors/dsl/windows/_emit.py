"""The times at which results of windows are sent."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from ks_actors._errors import TopologyError
from ks_actors.processors.api import check_kind, checked_ms


class EmitStrategy(Enum):
    """The time at which the result of a window is sent downstream."""

    ON_WINDOW_UPDATE = "on_window_update"
    """At every change."""
    ON_WINDOW_CLOSE = "on_window_close"
    """Once, when stream time has passed the window's end by the grace period."""


class Emit(NamedTuple):
    """The times at which the results of windows are sent: at every change, or `on_close`.

    With `idle_after_ms` windows also close by the wall clock, after that time without a record.
    """

    on_close: bool
    idle_after_ms: int | None = None


AT_EVERY_CHANGE = Emit(on_close=False)


def checked_emit(emit: Any, idle_after_ms: Any, of: str) -> Emit:
    """Return the times at which results are sent. Raises TopologyError unless the arguments fit."""
    check_kind(
        emit,
        EmitStrategy,
        role="argument 'emit'",
        of=of,
        remedy="give EmitStrategy.ON_WINDOW_UPDATE or EmitStrategy.ON_WINDOW_CLOSE",
    )
    on_close = emit is EmitStrategy.ON_WINDOW_CLOSE
    if idle_after_ms is not None:
        idle_after_ms = checked_ms(idle_after_ms, role="idle_after_ms", of=of, least=1)
        if not on_close:
            raise TopologyError(
                f"{of} sends results at every change, so no window has to close for them: leave "
                "out idle_after_ms, or give EmitStrategy.ON_WINDOW_CLOSE"
            )
    return Emit(on_close, idle_after_ms)
