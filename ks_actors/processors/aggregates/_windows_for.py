"""The windows of a timestamp: regular windows, and windows that users compute."""

from __future__ import annotations

from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING, Any

from ks_actors.processors.api import refuse_awaitable
from ks_actors.records import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ks_actors.records import CustomWindows

    # Start and end beside the window: unpacking the window would cost more for each record.
    Span = tuple[int, int, Window]
    WindowsFor = Callable[[int], Sequence[Span]]

MOST_SHARED = 1_000
"""The number of windows to share before they are forgotten."""
_new = tuple.__new__  # A named tuple's own constructor calls this.


def regular_windows(size: int, advance: int) -> WindowsFor:
    """Return a function that returns the windows of a timestamp (ms), by start.

    Windows last `size` ms, and a window starts every `advance` ms from 0 on. Records share the
    objects for a while.
    """
    # Windows start and end at multiples of this step: all times in one step have the same windows.
    step = gcd(size, advance)
    most = MOST_SHARED * advance // size
    known: dict[int, list[Span]] = {}

    def windows_for(timestamp: int) -> list[Span]:
        at = timestamp // step
        windows = known.get(at)
        if windows is None:
            if len(known) > most:
                known.clear()
            # The first start is that of the earliest window that contains the timestamp.
            first = max(0, timestamp - size + advance) // advance * advance
            windows = known[at] = [
                (start, start + size, _new(Window, (start, start + size)))
                for start in range(first, timestamp + 1, advance)
            ]
        return windows

    return windows_for


def checked_windows(windows: CustomWindows, size_ms: int) -> WindowsFor:
    """Return a function that returns the windows of a timestamp (ms), sorted by start.

    It raises TypeError or ValueError when the windows are not as CustomWindows demands.
    """
    find = windows.windows_for

    def wrong(timestamp: int, found: Any, why: str) -> str:
        return f"windows_for({timestamp}) of {windows!r} returned {found!r}: {why}"

    def windows_for(timestamp: int) -> list[Span]:
        given = find(timestamp)
        # A user's function may give any iterable, even a generator, which can be read once.
        try:
            found = given if type(given) is tuple else tuple(given)
        except Exception:
            refuse_awaitable(find, given, awaited=False)
            raise
        spans: list[Span] = []
        for window in found:
            if type(window) is not Window:
                raise TypeError(wrong(timestamp, found, "return Window(start, end) objects"))
            start, end = window
            # Stores have no negative starts, and a window that does not contain the record's time
            # might close before the record comes.
            if not 0 <= start <= timestamp < end:
                raise ValueError(
                    wrong(timestamp, found, "return windows from 0 on that contain the timestamp")
                )
            # Stores keep rows for `size_ms` and grace: a longer window would lose them while it is
            # open.
            if end - start > size_ms:
                raise ValueError(
                    wrong(timestamp, found, f"return windows of at most size_ms, {size_ms}")
                )
            spans.append((start, end, window))
        if len(spans) > 1:
            # Results come out in this order, as those of hopping windows do.
            spans.sort()
            # A row's key has the start only: two windows that share it would share the aggregate.
            if any(one[0] == next_[0] for one, next_ in pairwise(spans)):
                found = tuple(window for _, _, window in spans)
                raise ValueError(wrong(timestamp, found, "return windows with different starts"))
        return spans

    return windows_for
