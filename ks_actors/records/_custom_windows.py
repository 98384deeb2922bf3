"""Windows that users compute themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ks_actors._errors import SerializationError
from ks_actors.records._windowed import Window

if TYPE_CHECKING:
    from collections.abc import Iterable


class CustomWindows(Protocol):
    """Windows of your own, for `windowed_by`: any object with these three members.

    They correspond to a subclass of Kafka Streams' `Windows`. The object has no state: the same
    timestamp always gives the same windows, in each instance of the app. Windows may overlap and
    have gaps, but no two of them begin at the same time: stores and topics have only the start of a
    window, from which the end is computed.
    """

    @property
    def size_ms(self) -> int:
        """The longest time (ms) from the start of a window to its end.

        Stores keep windows for this time and the grace period.
        """
        ...

    @property
    def grace_ms(self) -> int:
        """The time (ms) after the end of a window for which it takes records."""
        ...

    def windows_for(self, timestamp: int, /) -> Iterable[Window]:
        """Return the windows that have a timestamp (ms), none if it is in a gap.

        Each window begins at or after 0, and at or before the timestamp, and ends after it.
        """
        ...


def window_at(windows: CustomWindows, start: int) -> Window:
    """Return the window that begins at a time (ms).

    If no window begins there, as after a change of a time zone's rules, return a window from this
    time to the earliest end of the windows that include this time. Raises SerializationError if no
    window includes it.
    """
    found = list(windows.windows_for(start))
    for window in found:
        if window[0] == start:
            return Window(*window)
    if not found:
        raise SerializationError(
            f"{windows!r} has no window at {start} ms, but a key has one that begins there: give "
            "the windows with which it was written"
        )
    return Window(start, min(window[1] for window in found))
