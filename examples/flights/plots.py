"""A report on delays, with plots, from the exported tables.

It needs only the Parquet files, no stream.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
from matplotlib.figure import Figure

from .topology import AIRLINES, BY_CARRIER, BY_HOUR

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from matplotlib.axes import Axes

NEW_YORK = ZoneInfo("America/New_York")
WEEK = timedelta(days=7)
FEW = 50
"""Hours of the day with fewer flights in a year are left out as meaningless."""


class Mean(NamedTuple):
    """Total minutes of departure delay, and the number of flights."""

    flights: int = 0
    delay: int = 0

    def plus(self, flights: int, delay: int) -> Mean:
        """Return the sum with more flights."""
        return Mean(self.flights + flights, self.delay + delay)

    @property
    def minutes(self) -> float:
        """The mean delay."""
        return self.delay / self.flights if self.flights else 0.0


class Carrier(NamedTuple):
    """A carrier's delays."""

    airline: str
    flights: int
    late: int
    mean: float

    @property
    def share(self) -> float:
        """The percentage of late flights."""
        return 100 * self.late / self.flights


def rows(tables: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table."""
    return [row for file in sorted((tables / name).glob("*.parquet")) for row in pq.ParquetFile(file).read().to_pylist()]


def write_report(tables: Path, directory: Path, until: int) -> Path:
    """Write `report.md` and its plots; return its path. Blocks."""
    directory.mkdir(parents=True, exist_ok=True)
    hours = rows(tables, BY_HOUR)
    carriers = carriers_of(rows(tables, BY_CARRIER), rows(tables, AIRLINES))
    draw(directory / "weeks.png", "Mean delay at departure, by week", lambda axes: weeks(axes, hours, until))
    draw(directory / "day.png", "Mean delay at departure, by hour of the day in New York", lambda axes: day(axes, hours))
    draw(directory / "carriers.png", "Flights that came late, of a hundred", lambda axes: bars(axes, carriers))
    path = directory / "report.md"
    path.write_text(text(hours, carriers, until), encoding="utf-8")
    return path


def carriers_of(table: Iterable[dict[str, Any]], airlines: Iterable[dict[str, Any]]) -> list[Carrier]:
    """Return all carriers, the one with the largest share of late flights first."""
    names = {row["key"]: row["value"]["name"] for row in airlines}
    found = [
        Carrier(names.get(row["key"], row["key"]), value["flights"], value["late"], value["departure_delay"] / value["flights"])
        for row in table
        if (value := row["value"])["flights"]
    ]
    return sorted(found, key=lambda carrier: -carrier.share)


def draw(path: Path, title: str, paint: Any) -> None:
    """Draw one plot into a file."""
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    paint(axes)
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def weeks(axes: Axes, hours: Iterable[dict[str, Any]], until: int) -> None:
    """Draw the year, and the end of history."""
    means: dict[datetime, Mean] = defaultdict(Mean)
    for row in hours:
        began = row["window_start"]
        week = datetime(began.year, 1, 1, tzinfo=UTC) + (began - datetime(began.year, 1, 1, tzinfo=UTC)) // WEEK * WEEK
        means[week] = means[week].plus(row["value"]["flights"], row["value"]["departure_delay"])
    axes.plot(sorted(means), [means[week].minutes for week in sorted(means)], color="tab:blue")
    axes.axvline(datetime.fromtimestamp(until / 1000, UTC), color="tab:red", linestyle="--", label="history │ live")  # type: ignore[arg-type]  # likewise
    axes.set_ylabel("minutes")
    axes.legend(frameon=False)


def day(axes: Axes, hours: Iterable[dict[str, Any]]) -> None:
    """Draw a day at each airport."""
    means: dict[tuple[str, int], Mean] = defaultdict(Mean)
    for row in hours:
        place = row["key"], row["window_start"].astimezone(NEW_YORK).hour
        means[place] = means[place].plus(row["value"]["flights"], row["value"]["departure_delay"])
    for origin in sorted({origin for origin, _ in means}):
        busy = [hour for hour in range(24) if means[origin, hour].flights >= FEW]
        axes.plot(busy, [means[origin, hour].minutes for hour in busy], marker=".", label=origin)
    axes.set_xticks(range(4, 25, 4))
    axes.set_xlabel("hour")
    axes.set_ylabel("minutes")
    axes.legend(frameon=False)


def bars(axes: Axes, carriers: list[Carrier]) -> None:
    """Draw the carriers."""
    backward = carriers[::-1]
    axes.barh([carrier.airline for carrier in backward], [carrier.share for carrier in backward], color="tab:orange")
    axes.set_xlabel("%")


def text(hours: Iterable[dict[str, Any]], carriers: list[Carrier], until: int) -> str:
    """Return the report."""
    total, end = Mean(), datetime.fromtimestamp(until / 1000, UTC)
    for row in hours:
        total = total.plus(row["value"]["flights"], row["value"]["departure_delay"])
    lines = [
        "# Delays of the flights that left New York in 2013",
        "",
        f"{total.flights:,} flights left, {total.minutes:.1f} minutes late on average. History ends at {end:%d %B}; what came then was streamed.",
        "",
        "![by week](weeks.png)",
        "![by hour](day.png)",
        "![by carrier](carriers.png)",
        "",
        "| carrier | flights | late | mean delay at departure |",
        "|---|--:|--:|--:|",
        *(f"| {each.airline} | {each.flights:,} | {each.share:.0f} % | {each.mean:.1f} min |" for each in carriers),
        "",
    ]
    return "\n".join(lines)
