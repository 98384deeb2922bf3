"""Windows of local days, weeks, months, quarters and years."""

from __future__ import annotations

import calendar
from dataclasses import dataclass, field
from datetime import date, datetime, time
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ks_actors._errors import TopologyError
from ks_actors.dsl.windows._local_calendar import Unit, local_calendar, longest_period
from ks_actors.processors.api import check_one_of, checked_ms

if TYPE_CHECKING:
    from datetime import timedelta

    from ks_actors.dsl.windows._local_calendar import LocalCalendar
    from ks_actors.records import Window

_MIDNIGHT: Final = time()


@final
@dataclass(frozen=True, init=False)
class CalendarWindows:
    """Tumbling windows that are days, weeks, months, quarters or years of a time zone.

    They begin and end by local clocks: a day lasts 23 or 25 hours when clocks are changed, and
    months have different lengths. `zone` is a name of the IANA time zone database, such as
    `Europe/Berlin`, or a `zoneinfo.ZoneInfo` of that name. With `starts_at` each window begins at
    that local time instead of midnight. If local clocks show that time twice, the first one counts;
    if they skip it, the window begins at the end of the gap. So each timestamp is in exactly one
    window. The first window begins at the epoch.

    Windows take records until stream time has passed their end by `grace_ms`. Keys in topics and
    stores have only a window's start: the end is computed with the machine's time zone database,
    which comes with the system or the package `tzdata`. All instances must use the same version of
    the database.

    Made by `days`, `weeks`, `months`, `quarters` and `years`. In Kafka Streams one would subclass
    `Windows`.
    """

    unit: Unit
    zone: str
    grace_ms: int
    starts_at: time
    first_weekday: int
    _calendar: LocalCalendar = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        unit: Unit,
        zone: str | ZoneInfo,
        grace_ms: int | timedelta = 0,
        starts_at: time = _MIDNIGHT,
        first_weekday: int = int(calendar.MONDAY),
    ) -> None:
        put = partial(object.__setattr__, self)
        put("unit", unit)
        # Keep only the zone's name: windows are then equal, however their zone was given.
        put("zone", zone.key if isinstance(zone, ZoneInfo) else zone)
        put("grace_ms", checked_ms(grace_ms, role="grace_ms", of="CalendarWindows", least=0))
        put("starts_at", starts_at)
        # From Python 3.12 on the names of `calendar` are members of an enum.
        put(
            "first_weekday",
            int(first_weekday) if isinstance(first_weekday, IntEnum) else first_weekday,
        )
        check_one_of(self.unit, get_args(Unit), role="unit", of="CalendarWindows")
        _check_start(self.starts_at)
        check_one_of(
            self.first_weekday, tuple(range(7)), role="first_weekday", of="CalendarWindows"
        )
        # Check before the calendar does: its error would not name the argument.
        _check_zone(self.zone)
        shared = local_calendar(self.unit, self.zone, self.starts_at, self.first_weekday)
        put("_calendar", shared)

    @classmethod
    def days(
        cls, zone: str | ZoneInfo, *, grace_ms: int | timedelta = 0, starts_at: time = _MIDNIGHT
    ) -> CalendarWindows:
        """Return windows of local days."""
        return cls("day", zone, grace_ms, starts_at)

    @classmethod
    def weeks(
        cls,
        zone: str | ZoneInfo,
        *,
        grace_ms: int | timedelta = 0,
        starts_at: time = _MIDNIGHT,
        first_weekday: int = int(calendar.MONDAY),
    ) -> CalendarWindows:
        """Return windows of local weeks; `first_weekday` is as in `calendar`, Monday is 0."""
        return cls("week", zone, grace_ms, starts_at, first_weekday)

    @classmethod
    def months(
        cls, zone: str | ZoneInfo, *, grace_ms: int | timedelta = 0, starts_at: time = _MIDNIGHT
    ) -> CalendarWindows:
        """Return windows of local months."""
        return cls("month", zone, grace_ms, starts_at)

    @classmethod
    def quarters(
        cls, zone: str | ZoneInfo, *, grace_ms: int | timedelta = 0, starts_at: time = _MIDNIGHT
    ) -> CalendarWindows:
        """Return windows of three local months; the first window of a year begins in January."""
        return cls("quarter", zone, grace_ms, starts_at)

    @classmethod
    def years(
        cls, zone: str | ZoneInfo, *, grace_ms: int | timedelta = 0, starts_at: time = _MIDNIGHT
    ) -> CalendarWindows:
        """Return windows of local years."""
        return cls("year", zone, grace_ms, starts_at)

    @property
    def size_ms(self) -> int:
        """The length (ms) of the longest window, such as a day with 25 hours.

        Stores keep windows for this time and the grace period.
        """
        return longest_period(self.unit, self.zone, self.starts_at, self.first_weekday)

    def windows_for(self, timestamp: int, /) -> tuple[Window]:
        """Return the window that has a timestamp (ms), as the only member of a tuple."""
        return self._calendar.period(timestamp)

    def window_of(self, day: date) -> Window:
        """Return the window of a local day, for queries.

        A day that the zone has skipped is an empty window. Raises TopologyError for days that end
        before the epoch.
        """
        # A datetime is a date, too, but its day depends on a zone of its own.
        if isinstance(day, datetime) or not isinstance(day, date):
            raise TopologyError(f"day of CalendarWindows.window_of is {day!r}: give a date")
        window = self._calendar.period_of(day)
        # A window that includes the epoch begins there; a window before it can have no record.
        if window.end <= 0:
            raise TopologyError(f"there is no window of {day}: windows begin at the epoch")
        return window


def _check_zone(zone: Any) -> None:
    try:
        if isinstance(zone, str) and zone:
            ZoneInfo(zone)
            return
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise TopologyError(
        f"zone of CalendarWindows is {zone!r}, which the time zone database does not have: give a "
        "name such as 'Europe/Berlin'; where the system has no database, install the package tzdata"
    )


def _check_start(starts_at: Any) -> None:
    # Timestamps have whole milliseconds, so no window can begin within one.
    if not isinstance(starts_at, time) or starts_at.tzinfo or starts_at.microsecond % 1_000:
        raise TopologyError(
            f"starts_at of CalendarWindows is {starts_at!r}: give a datetime.time without a time "
            "zone, in whole milliseconds"
        )
