"""The kinds of windows that Kafka Streams has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from ks_actors._errors import TopologyError
from ks_actors._hints import Hinted
from ks_actors.processors.api import checked_ms
from ks_actors.records import Window

if TYPE_CHECKING:
    from datetime import datetime, timedelta

LAST_INSTANT = 2**63 - 1
"""The end (ms) of a window that has none."""


@final
@dataclass(frozen=True, init=False)
class TimeWindows(metaclass=Hinted):
    """Windows of a fixed size that begin at multiples of `advance_ms` since the epoch.

    They are tumbling if `advance_ms` is the size, else hopping. A window takes records until stream
    time has passed its end by `grace_ms`. Made by `of_size_with_no_grace` and `of_size_and_grace`.
    """

    size_ms: int
    grace_ms: int
    advance_ms: int

    def __init__(
        self, size_ms: int | timedelta, grace_ms: int | timedelta, advance_ms: int | timedelta
    ) -> None:
        _set_ms(self, size_ms=size_ms, grace_ms=grace_ms, advance_ms=advance_ms)
        if self.size_ms <= 0:
            raise TopologyError(f"a window lasts at least 1 ms, size_ms is {self.size_ms}")
        if self.grace_ms < 0:
            raise TopologyError(f"grace_ms is {self.grace_ms}: give 0 or more")
        if not 0 < self.advance_ms <= self.size_ms:
            raise TopologyError(
                f"windows of {self.size_ms} ms advance by 1 to {self.size_ms} ms, advance_ms is "
                f"{self.advance_ms}"
            )

    @classmethod
    def of_size_with_no_grace(cls, size_ms: int | timedelta) -> TimeWindows:
        """Return tumbling windows that take no record once stream time has reached their end."""
        return cls(size_ms, 0, size_ms)

    @classmethod
    def of_size_and_grace(cls, size_ms: int | timedelta, grace_ms: int | timedelta) -> TimeWindows:
        """Return tumbling windows with a grace period.

        They take records until stream time has passed their end by `grace_ms`.
        """
        return cls(size_ms, grace_ms, size_ms)

    def advance_by(self, advance_ms: int | timedelta) -> TimeWindows:
        """Return hopping windows: a new window begins every `advance_ms`."""
        return TimeWindows(self.size_ms, self.grace_ms, advance_ms)

    def windows_for(self, timestamp: int, /) -> list[Window]:
        """Return the windows that have a timestamp (ms), by start."""
        size, advance = self.size_ms, self.advance_ms
        first = max(0, timestamp - size + advance) // advance * advance
        return [Window(start, start + size) for start in range(first, timestamp + 1, advance)]

    @property
    def keep_ms(self) -> int:
        """The least time (ms) for which a store has to keep a window."""
        return self.size_ms + self.grace_ms

    @property
    def need_ms(self) -> int:
        """The time (ms) for which accepted records need windows."""
        return self.keep_ms


@final
@dataclass(frozen=True, init=False)
class SlidingWindows(metaclass=Hinted):
    """A window for every set of records with timestamps at most `time_difference_ms` apart.

    Its ends are timestamps of records. A window takes records until stream time has passed its end
    by more than `grace_ms`. Made by `of_time_difference_with_no_grace` and
    `of_time_difference_and_grace`.
    """

    time_difference_ms: int
    grace_ms: int

    def __init__(self, time_difference_ms: int | timedelta, grace_ms: int | timedelta) -> None:
        _set_ms(self, time_difference_ms=time_difference_ms, grace_ms=grace_ms)
        if self.time_difference_ms < 1:
            raise TopologyError(
                f"a window lasts at least 1 ms, time_difference_ms is {self.time_difference_ms}"
            )
        if self.grace_ms < 0:
            raise TopologyError(f"grace_ms is {self.grace_ms}: give 0 or more")

    @classmethod
    def of_time_difference_with_no_grace(
        cls, time_difference_ms: int | timedelta
    ) -> SlidingWindows:
        """Return windows that take no record once stream time has passed their end."""
        return cls(time_difference_ms, 0)

    @classmethod
    def of_time_difference_and_grace(
        cls, time_difference_ms: int | timedelta, grace_ms: int | timedelta
    ) -> SlidingWindows:
        """Return windows with a grace period.

        They take records until stream time has passed their end by more than `grace_ms`.
        """
        return cls(time_difference_ms, grace_ms)

    @property
    def size_ms(self) -> int:
        """The time (ms) from the first to the last instant of a window."""
        return self.time_difference_ms

    @property
    def keep_ms(self) -> int:
        """The least time (ms) for which a store has to keep a window.

        A new window is computed from earlier windows, which must still be in the store.
        """
        return 2 * self.time_difference_ms + self.grace_ms

    @property
    def need_ms(self) -> int:
        """The time (ms) for which accepted records need windows.

        The last window that takes a record begins at that record's timestamp. It is computed from
        the window that ends at the timestamp of the record before.
        """
        return self.keep_ms + 2


@final
@dataclass(frozen=True, init=False)
class UnlimitedWindows(metaclass=Hinted):
    """One window that begins at `start_ms` and never ends. Made by `of`."""

    start_ms: int = 0

    def __init__(self, start_ms: int | datetime | timedelta = 0) -> None:
        start = checked_ms(start_ms, role="start_ms", of="UnlimitedWindows", instant=True)
        object.__setattr__(self, "start_ms", start)
        if self.start_ms < 0:
            raise TopologyError(
                f"a window cannot begin before the epoch, start_ms is {self.start_ms}"
            )

    @classmethod
    def of(cls) -> UnlimitedWindows:
        """Return the window that begins at the epoch."""
        return cls()

    def start_on(self, start_ms: int | datetime | timedelta) -> UnlimitedWindows:
        """Return the window that begins at `start_ms`; earlier records are dropped."""
        return UnlimitedWindows(start_ms)

    def windows_for(self, timestamp: int, /) -> list[Window]:
        """Return the window if it has a timestamp (ms)."""
        return [Window(self.start_ms, LAST_INSTANT)] if timestamp >= self.start_ms else []

    @property
    def size_ms(self) -> int:
        """The largest time there is."""
        return LAST_INSTANT

    @property
    def grace_ms(self) -> int:
        """Zero: the window never ends."""
        return 0

    @property
    def keep_ms(self) -> int:
        """The largest time there is: rows are never dropped."""
        return LAST_INSTANT

    @property
    def need_ms(self) -> int:
        """The largest time there is: rows are never dropped."""
        return LAST_INSTANT


@final
@dataclass(frozen=True, init=False)
class SessionWindows(metaclass=Hinted):
    """A window for every run of a key's records without a gap longer than `inactivity_gap_ms`.

    It ends at the last of these records. It takes records until stream time has passed its end by
    more than gap and `grace_ms`. Out-of-order records can merge two sessions. Made by
    `of_inactivity_gap_with_no_grace` and `of_inactivity_gap_and_grace`.
    """

    inactivity_gap_ms: int
    grace_ms: int

    def __init__(self, inactivity_gap_ms: int | timedelta, grace_ms: int | timedelta) -> None:
        _set_ms(self, inactivity_gap_ms=inactivity_gap_ms, grace_ms=grace_ms)
        if self.inactivity_gap_ms < 0:
            raise TopologyError(f"inactivity_gap_ms is {self.inactivity_gap_ms}: give 0 or more")
        if self.grace_ms < 0:
            raise TopologyError(f"grace_ms is {self.grace_ms}: give 0 or more")

    @classmethod
    def of_inactivity_gap_with_no_grace(cls, inactivity_gap_ms: int | timedelta) -> SessionWindows:
        """Return sessions without a grace period.

        They take no record once stream time has passed their end by more than the gap.
        """
        return cls(inactivity_gap_ms, 0)

    @classmethod
    def of_inactivity_gap_and_grace(
        cls, inactivity_gap_ms: int | timedelta, grace_ms: int | timedelta
    ) -> SessionWindows:
        """Return sessions with a grace period.

        They take records until stream time has passed their end by more than the gap and
        `grace_ms`.
        """
        return cls(inactivity_gap_ms, grace_ms)

    @property
    def keep_ms(self) -> int:
        """The least time (ms) for which a store has to keep a session."""
        return self.inactivity_gap_ms + self.grace_ms

    @property
    def need_ms(self) -> int:
        """The time (ms) for which accepted records need sessions.

        Sessions are open up to gap and grace after their end.
        """
        return self.keep_ms + 1


@final
@dataclass(frozen=True, init=False)
class JoinWindows(metaclass=Hinted):
    """The time range of a join: which records of two streams match.

    A record of the right stream matches a record of the left stream if it is between `before_ms`
    earlier and `after_ms` later, inclusive; one of the two may be negative. Records are kept until
    they can match no record in order, and `grace_ms` longer. Made by
    `of_time_difference_with_no_grace` and `of_time_difference_and_grace`.
    """

    before_ms: int
    after_ms: int
    grace_ms: int

    def __init__(
        self, before_ms: int | timedelta, after_ms: int | timedelta, grace_ms: int | timedelta
    ) -> None:
        _set_ms(self, before_ms=before_ms, after_ms=after_ms, grace_ms=grace_ms)
        if self.before_ms + self.after_ms < 0:
            raise TopologyError(
                f"a join window from {self.before_ms} ms before to {self.after_ms} ms after is "
                "empty: the sum must not be negative"
            )
        if self.grace_ms < 0:
            raise TopologyError(f"grace_ms is {self.grace_ms}: give 0 or more")

    @classmethod
    def of_time_difference_with_no_grace(cls, time_difference_ms: int | timedelta) -> JoinWindows:
        """Return windows that reach equally far before and after a record."""
        return cls(time_difference_ms, time_difference_ms, 0)

    @classmethod
    def of_time_difference_and_grace(
        cls, time_difference_ms: int | timedelta, grace_ms: int | timedelta
    ) -> JoinWindows:
        """Return windows that reach equally far before and after a record, with a grace period.

        Out-of-order records can be late by `grace_ms`.
        """
        return cls(time_difference_ms, time_difference_ms, grace_ms)

    def before(self, before_ms: int | timedelta) -> JoinWindows:
        """Return windows with another beginning."""
        return JoinWindows(before_ms, self.after_ms, self.grace_ms)

    def after(self, after_ms: int | timedelta) -> JoinWindows:
        """Return windows with another end."""
        return JoinWindows(self.before_ms, after_ms, self.grace_ms)

    @property
    def size_ms(self) -> int:
        """The time (ms) from the first to the last instant."""
        return self.before_ms + self.after_ms


def _set_ms(windows: object, **times: int | timedelta) -> None:
    of = type(windows).__name__
    for role, time in times.items():
        object.__setattr__(windows, role, checked_ms(time, role=role, of=of))
