"""The periods of a local calendar: the instants at which days, weeks or months of a zone begin."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final
from zoneinfo import ZoneInfo

from ks_actors.records import Window

if TYPE_CHECKING:
    from datetime import time

Unit: TypeAlias = Literal["day", "week", "month", "quarter", "year"]

_MS: Final = timedelta(milliseconds=1)
_DAY: Final = timedelta(days=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MS: Final = 86_400_000
_STEP: Final = 2 * _DAY_MS
_REGULAR: Final = (datetime(2096, 1, 1, tzinfo=UTC) - _EPOCH) // _MS
"""The first day of a leap year in which zones follow one rule: their tables end with 2087."""
_FAR: Final = (datetime(9000, 1, 1, tzinfo=UTC) - _EPOCH) // _MS
# The calendar and the rules of time zones repeat after 400 years, which are whole weeks.
_CYCLE: Final = 146_097 * _DAY // _MS
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
_MOST: Final = 1_000
"""The most windows to remember before they are cleared."""


@final
class LocalCalendar:
    """The periods of one unit in one time zone; each ends when the next period begins.

    A period begins at the first instant at which local clocks show its first day and `starts_at`,
    or later: at the earlier instant if clocks show it twice, at the end of a gap in clocks. So each
    instant is in exactly one period. A day that a zone has skipped is empty.
    """

    def __init__(self, unit: Unit, zone: str, starts_at: time, first_weekday: int) -> None:
        self._unit = unit
        self._zone = ZoneInfo(zone)
        self._starts_at = starts_at
        self._since_midnight = timedelta(
            hours=starts_at.hour,
            minutes=starts_at.minute,
            seconds=starts_at.second,
            microseconds=starts_at.microsecond,
        )
        self._first_weekday = first_weekday
        # Replaced as a whole: tasks in several threads may read it.
        self._known: tuple[list[int], list[tuple[Window]]] = ([], [])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the settings: the reading process may have such a calendar already."""
        settings = (self._unit, self._zone.key, self._starts_at, self._first_weekday)
        return local_calendar, settings

    def period(self, timestamp: int) -> tuple[Window]:
        """Return the period that has a timestamp (ms), as the only member of a tuple."""
        starts, periods = self._known
        place = bisect_right(starts, timestamp) - 1
        if place >= 0 and timestamp < periods[place][0][1]:
            return periods[place]
        found = (self._computed(timestamp),)
        if len(starts) >= _MOST:
            starts, periods = [], []
        place = bisect_left(starts, found[0].start)
        self._known = (
            [*starts[:place], found[0].start, *starts[place:]],
            [*periods[:place], found, *periods[place:]],
        )
        return found

    def period_of(self, day: date) -> Window:
        """Return the period to which a day belongs."""
        first = self._first(day)
        return Window(max(0, self._begin(first)), self._begin(self._next(first)))

    def longest(self) -> int:
        """Return the longest time (ms) that a period lasts, since the epoch or year by year.

        Only periods in which clocks are set back are longer than others, so check only these.
        """
        instants = range(0, _REGULAR, _STEP)
        offsets = [
            datetime.fromtimestamp(instant // 1_000, self._zone).utcoffset() for instant in instants
        ]
        looks = set(range(_REGULAR, _REGULAR + 367 * _DAY_MS, _DAY_MS))
        for instant, before, after in zip(instants, offsets, offsets[1:], strict=False):
            if before != after:
                looks.update((instant, instant + _DAY_MS, instant + _STEP))
        return max(end - start for ((start, end),) in map(self.period, looks))

    def _computed(self, timestamp: int) -> Window:
        # No datetime is later than the year 9999.
        shift = 0 if timestamp < _FAR else ((timestamp - _FAR) // _CYCLE + 1) * _CYCLE
        instant = timestamp - shift
        local = (_EPOCH + instant * _MS).astimezone(self._zone).replace(tzinfo=None)
        first = self._first((local - self._since_midnight).date())
        # Clocks that are set back over midnight show a day again after the next day has begun.
        while self._begin(first) > instant:
            first = self._first(first - _DAY)
        while (end := self._begin(self._next(first))) <= instant:
            first = self._next(first)
        return Window(max(0, self._begin(first) + shift), end + shift)

    def _begin(self, first: date) -> int:
        """Return the instant (ms) at which a period with this first day begins."""
        local = datetime.combine(first, self._starts_at)
        before = local.replace(tzinfo=self._zone)
        after = before.replace(fold=1)
        latest = (before.astimezone(UTC) - _EPOCH) // _MS
        earliest = (after.astimezone(UTC) - _EPOCH) // _MS
        if earliest >= latest:
            return latest

        def shows(instant: int) -> datetime:
            return (_EPOCH + instant * _MS).astimezone(self._zone).replace(tzinfo=None)

        # Clocks are set forward over that time, at an instant in between.
        return earliest + bisect_left(range(earliest, latest), local, key=shows)

    def _first(self, day: date) -> date:
        """Return the first day of the period to which a day belongs."""
        if self._unit == "day":
            return day
        if self._unit == "week":
            return day - (day.weekday() - self._first_weekday) % 7 * _DAY
        months = _MONTHS[self._unit]
        return date(day.year, (day.month - 1) // months * months + 1, 1)

    def _next(self, first: date) -> date:
        """Return the first day of the next period."""
        if self._unit == "day":
            return first + _DAY
        if self._unit == "week":
            return first + 7 * _DAY
        month = first.month - 1 + _MONTHS[self._unit]
        return date(first.year + month // 12, month % 12 + 1, 1)


@lru_cache(maxsize=1_000)
def local_calendar(unit: Unit, zone: str, starts_at: time, first_weekday: int) -> LocalCalendar:
    """Return the calendar of these settings, which all windows share.

    Raises zoneinfo.ZoneInfoNotFoundError or ValueError if there is no such zone.
    """
    return LocalCalendar(unit, zone, starts_at, first_weekday)


@lru_cache(maxsize=1_000)
def longest_period(unit: Unit, zone: str, starts_at: time, first_weekday: int) -> int:
    """Return the longest time (ms) from the beginning of such a period to its end."""
    return local_calendar(unit, zone, starts_at, first_weekday).longest()
