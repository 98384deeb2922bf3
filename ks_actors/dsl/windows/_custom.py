"""The user's own windows, checked, with the times that stores need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, final

from ks_actors.dsl.windows._calendar import CalendarWindows
from ks_actors.dsl.windows._windows import (
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
)
from ks_actors.processors.api import check_function, check_kind, checked_ms

if TYPE_CHECKING:
    from ks_actors.records import CustomWindows

Windows: TypeAlias = "TimeWindows | SlidingWindows | UnlimitedWindows | CustomWindows"
"""The windows of time for `windowed_by`."""


@final
@dataclass(frozen=True)
class CheckedWindows:
    """Custom windows with their size and grace period, which are read once."""

    windows: CustomWindows
    size_ms: int
    grace_ms: int

    @property
    def tumbling(self) -> bool:
        """Whether the windows are known not to overlap."""
        return isinstance(self.windows, CalendarWindows)

    @property
    def keep_ms(self) -> int:
        """The least time (ms) for which a store has to keep a window."""
        return self.size_ms + self.grace_ms

    @property
    def need_ms(self) -> int:
        """The time (ms) for which a store has to keep windows of records that it accepts."""
        return self.keep_ms


KnownWindows: TypeAlias = TimeWindows | SlidingWindows | UnlimitedWindows | CheckedWindows
"""The windows of time that operators know."""


def checked_windows(windows: Any, of: str) -> KnownWindows | SessionWindows:
    """Return the windows; the user's own windows become CheckedWindows.

    Raises TopologyError unless the argument is one of the kinds of windows, or has the members of
    CustomWindows.
    """
    kinds = (TimeWindows, SlidingWindows, UnlimitedWindows, SessionWindows)
    if isinstance(windows, kinds):
        return windows
    remedy = (
        "give TimeWindows, SlidingWindows, UnlimitedWindows, SessionWindows or CalendarWindows, "
        "such as TimeWindows.of_size_with_no_grace(60_000), or an object with the members of "
        "CustomWindows"
    )
    if isinstance(windows, JoinWindows):
        remedy = "JoinWindows are for joins of streams; " + remedy
    find = None if isinstance(windows, type) else getattr(windows, "windows_for", None)
    if find is None:
        check_kind(windows, kinds, role="argument 'windows'", of=of, remedy=remedy)
    of = f"the windows {windows!r} of {of}"
    check_function(find, 1, role="windows_for", of=of, iterated=True)
    size_ms, grace_ms = (getattr(windows, role, None) for role in ("size_ms", "grace_ms"))
    size_ms = checked_ms(size_ms, role="size_ms", of=of, least=1)
    grace_ms = checked_ms(grace_ms, role="grace_ms", of=of, least=0)
    own: Any = windows
    return CheckedWindows(own, size_ms, grace_ms)
