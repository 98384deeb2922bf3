"""Windows of local days, weeks, months, quarters and years."""

from __future__ import annotations

import calendar
import pickle
import zoneinfo
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import CalendarWindows, TopologyError, Window
from ks_actors.records import window_at

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = 3_600_000
ZONES = sorted(zoneinfo.available_timezones() - {"localtime", "Factory"})
# Zones that have set their clocks back over midnight, skipped a day, moved by half an hour, or by many.
ODD = [
    "America/St_Johns",
    "Pacific/Apia",
    "Pacific/Kwajalein",
    "Australia/Lord_Howe",
    "Antarctica/Vostok",
    "Antarctica/Troll",
    "America/Sao_Paulo",
    "Africa/Casablanca",
    "Asia/Pyongyang",
    "Europe/Berlin",
]
UNITS: list[Literal["day", "week", "month", "quarter", "year"]] = ["day", "week", "month", "quarter", "year"]
INSTANTS = st.integers(0, int((datetime(2100, 1, 1, tzinfo=UTC) - EPOCH).total_seconds() * 1_000))


@st.composite
def windows(draw: st.DrawFn) -> CalendarWindows:
    return CalendarWindows(
        draw(st.sampled_from(UNITS)),
        draw(st.sampled_from(ODD) | st.sampled_from(ZONES)),
        0,
        draw(st.sampled_from([time(), time(6), time(0, 30), time(2, 30), time(23, 59, 59, 999_000)]) | st.builds(time, st.integers(0, 23))),
        draw(st.integers(0, 6)),
    )


def local(instant: int, zone: str) -> datetime:
    return (EPOCH + timedelta(milliseconds=instant)).astimezone(zoneinfo.ZoneInfo(zone)).replace(tzinfo=None)


def instant(*of: int, zone: str) -> int:
    return int(datetime(*of, tzinfo=zoneinfo.ZoneInfo(zone)).timestamp() * 1_000)  # type: ignore[arg-type,misc]  # numbers, and a zone


@given(windows(), INSTANTS)
def test_each_timestamp_is_in_exactly_one_window(of: CalendarWindows, timestamp: int) -> None:
    """It is the same one for its first and its last instant, and its start gives it back; it lasts no longer than `size_ms`."""
    (window,) = of.windows_for(timestamp)
    assert window.start <= timestamp < window.end
    assert of.windows_for(window.start) == of.windows_for(window.end - 1) == (window,)
    assert window_at(of, window.start) == window
    assert window.end - window.start <= of.size_ms


@given(windows(), INSTANTS)
def test_windows_are_side_by_side(of: CalendarWindows, timestamp: int) -> None:
    """The end of one is the start of the next one; the first one begins at the epoch."""
    (window,) = of.windows_for(timestamp)
    assert of.windows_for(window.end)[0].start == window.end
    assert window.start == 0 or of.windows_for(window.start - 1)[0].end == window.start
    assert of.windows_for(0)[0].start == 0


@given(windows(), INSTANTS)
def test_a_window_begins_when_clocks_first_show_its_beginning(of: CalendarWindows, timestamp: int) -> None:
    """On the unit's first day, at `starts_at` or, where clocks skip that, at the next time that they show; not one ms earlier."""
    (window,) = of.windows_for(timestamp)
    if window.start == 0:
        return
    begins = local(window.start, of.zone)
    # The day and time that it begins at by its name, which clocks may skip.
    nominal = datetime.combine(begins.date(), of.starts_at)
    if nominal > begins:
        nominal -= timedelta(days=1)
    if begins != nominal:
        assert local(window.start - 1, of.zone) < nominal < begins
    if begins == nominal:
        expected = {
            "day": True,
            "week": begins.weekday() == of.first_weekday,
            "month": begins.day == 1,
            "quarter": begins.day == 1 and begins.month in {1, 4, 7, 10},
            "year": begins.day == begins.month == 1,
        }
        assert expected[of.unit]


@given(windows(), st.lists(INSTANTS, max_size=20))
def test_windows_do_not_depend_on_those_looked_up_before(of: CalendarWindows, timestamps: list[int]) -> None:
    """The order of look-ups is all the same, and so is the process."""
    fresh = pickle.loads(pickle.dumps(of))  # noqa: S301 - our own bytes
    assert fresh == of
    assert [of.windows_for(each) for each in timestamps] == [fresh.windows_for(each) for each in reversed(timestamps)][::-1]


@pytest.mark.parametrize(
    ("day", "hours"),
    [
        (date(2026, 3, 28), 24),
        (date(2026, 3, 29), 23),
        (date(2026, 3, 30), 24),
        (date(2026, 10, 25), 25),
        (date(2026, 12, 31), 24),
    ],
)
def test_a_day_has_as_many_hours_as_its_clocks_show(day: date, hours: int) -> None:
    """23 when clocks are set forward, 25 when they are set back."""
    window = CalendarWindows.days("Europe/Berlin").window_of(day)
    assert (window.end - window.start) // HOUR == hours
    assert window.start == instant(day.year, day.month, day.day, zone="Europe/Berlin")


@pytest.mark.parametrize(("month", "days"), [((2028, 2), 29), ((2026, 2), 28), ((2026, 4), 30), ((2026, 12), 31)])
def test_a_month_has_as_many_days_as_it_has(month: tuple[int, int], days: int) -> None:
    """In a zone whose clocks are never changed."""
    window = CalendarWindows.months("Asia/Tokyo").window_of(date(*month, 15))
    assert (window.end - window.start) == days * 24 * HOUR


def test_weeks_quarters_and_years_begin_where_they_do() -> None:
    """A week on Monday, or on the day that is given; quarters in January, April, July, October."""
    day, zone = date(2026, 11, 26), "Europe/Berlin"
    assert CalendarWindows.weeks(zone).window_of(day).start == instant(2026, 11, 23, zone=zone)
    assert CalendarWindows.weeks(zone, first_weekday=calendar.SUNDAY).window_of(day).start == instant(2026, 11, 22, zone=zone)
    quarter = Window(instant(2026, 10, 1, zone=zone), instant(2027, 1, 1, zone=zone))
    assert CalendarWindows.quarters(zone).window_of(day) == quarter
    assert CalendarWindows.years(zone).window_of(day) == (instant(2026, 1, 1, zone=zone), quarter.end)


def test_days_may_begin_at_another_time_than_midnight() -> None:
    """As in Confluent's example of daily windows with a time zone: a day from six to six."""
    days = CalendarWindows.days("Europe/Zurich", starts_at=time(6))
    (window,) = days.windows_for(instant(2026, 3, 29, 5, 59, zone="Europe/Zurich"))
    assert window == (instant(2026, 3, 28, 6, zone="Europe/Zurich"), instant(2026, 3, 29, 6, zone="Europe/Zurich"))
    assert (window.end - window.start) // HOUR == 23


def test_a_beginning_that_clocks_skip_is_when_they_go_on() -> None:
    """Havana sets its clocks forward at midnight: its day begins at one."""
    window = CalendarWindows.days("America/Havana").window_of(date(2026, 3, 8))
    assert local(window.start, "America/Havana") == datetime(2026, 3, 8, 1)  # noqa: DTZ001 - a local time
    assert (window.end - window.start) // HOUR == 23


def test_a_midnight_that_clocks_show_twice_counts_the_first_time() -> None:
    """Newfoundland set its clocks back from one minute past midnight to the day before: that hour belongs to the new day."""
    days = CalendarWindows.days("America/St_Johns")
    window = days.window_of(date(2010, 11, 7))
    assert (window.end - window.start) // HOUR == 25
    again = window.start + 2 * 60_000
    assert local(again, "America/St_Johns").date() == date(2010, 11, 6)
    assert days.windows_for(again) == (window,)


def test_a_day_that_a_zone_has_skipped_is_empty() -> None:
    """Samoa went over the date line, without the 30th of December 2011."""
    days = CalendarWindows.days("Pacific/Apia")
    before, skipped, after = (days.window_of(date(2011, 12, day)) for day in (29, 30, 31))
    assert skipped.start == skipped.end == before.end == after.start


@given(windows(), INSTANTS, st.integers(1, 10**5))
def test_the_calendar_goes_on_behind_the_year_9999(of: CalendarWindows, timestamp: int, cycles: int) -> None:
    """It repeats after 400 years: a record with a wild timestamp has a window, too."""
    shift = cycles * 146_097 * 24 * HOUR
    late = timestamp + 120 * 365 * 24 * HOUR  # zones follow one rule by then: Morocco lists its Ramadans until 2087
    (window,) = of.windows_for(late)
    assert of.windows_for(late + shift) == ((window.start + shift, window.end + shift),)


def test_zones_may_be_given_as_objects() -> None:
    """A ZoneInfo stands for its name."""
    assert CalendarWindows.days(zoneinfo.ZoneInfo("Europe/Berlin")) == CalendarWindows.days("Europe/Berlin")


BERLIN: Any = "Europe/Berlin"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"zone": "Europe/Atlantis"}, "zone of CalendarWindows is 'Europe/Atlantis'"),
        ({"zone": "../passwd"}, "zone of CalendarWindows"),
        ({"zone": ""}, "zone of CalendarWindows"),
        ({"zone": None}, "zone of CalendarWindows is None"),
        ({"zone": "Europe"}, "zone of CalendarWindows is 'Europe'"),
        ({"unit": "hour"}, "unit of CalendarWindows is 'hour'"),
        ({"grace_ms": -1}, "grace_ms of CalendarWindows is -1"),
        ({"grace_ms": 1.5}, "grace_ms of CalendarWindows is 1.5"),
        ({"starts_at": 6}, "starts_at of CalendarWindows is 6"),
        ({"starts_at": time(6, tzinfo=UTC)}, "starts_at of CalendarWindows"),
        ({"starts_at": time(0, 0, 0, 1)}, "starts_at of CalendarWindows"),
        ({"first_weekday": 7}, "first_weekday of CalendarWindows is 7"),
    ],
)
def test_arguments_that_do_not_fit_are_told(options: dict[str, Any], text: str) -> None:
    """By name, when the windows are made."""
    with pytest.raises(TopologyError, match=text):
        CalendarWindows(**({"unit": "day", "zone": BERLIN} | options))


def test_a_window_is_asked_for_by_a_date() -> None:
    """A time is refused, and so is a date before the epoch."""
    days = CalendarWindows.days("Europe/Berlin")
    with pytest.raises(TopologyError, match="give a date"):
        days.window_of(datetime(2026, 1, 1))  # noqa: DTZ001 - it is refused in any zone
    with pytest.raises(TopologyError, match="windows begin at the epoch"):
        days.window_of(date(1969, 12, 31))
    assert days.window_of(date(1970, 1, 1)) == (0, 23 * HOUR)


@pytest.mark.parametrize("unit", ["quarter", "year"])
@pytest.mark.parametrize("zone", ["America/Dawson_Creek", "America/Swift_Current", "Africa/Monrovia", "Africa/Casablanca", "Europe/Berlin"])
def test_the_size_of_local_periods_is_that_of_the_longest_one(zone: str, unit: Literal["quarter", "year"]) -> None:
    """No period of the zone since the epoch is longer, also where the clocks were changed in a leap year, and one is as long."""
    of = CalendarWindows(unit, zone, 0, time(), 0)
    longest = at = 0
    while at < instant(2096, 1, 1, zone="UTC"):
        (window,) = of.windows_for(at)
        longest, at = max(longest, window.end - window.start), window.end
    assert of.size_ms == longest
