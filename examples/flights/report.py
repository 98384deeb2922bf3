"""Print the results."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from .results import Results

HEAVY = 20
"""Hours with fewer flights do not count for the worst hours."""


def show(console: Console, results: Results) -> None:
    """Print the three result tables, the longer ones in part, and the number of dead letters."""
    console.print(carriers(results), hours(results), models(results))
    console.print(f"{len(results.dead_letters):,} rows were no flights: they are in the dead letters", highlight=False)


def carriers(results: Results) -> Table:
    """Return all carriers, the one with most flights first."""
    table = make("Carriers", "carrier", ">flights", ">late", ">departure", ">arrival", ">late in bad weather", ">worst", "to")
    for report in sorted(results.by_carrier.values(), key=lambda report: (-report.delays.flights, report.airline)):
        delays = report.delays
        minutes, destination = delays.worst
        table.add_row(
            report.airline,
            f"{delays.flights:,}",
            percent(delays.late, delays.flights),
            mean(delays.departure_delay, delays.flights),
            mean(delays.arrival_delay, delays.flights),
            percent(delays.late_in_bad_weather, delays.bad_weather),
            f"{minutes:,}",
            destination,
        )
    return table


def hours(results: Results) -> Table:
    """Return the ten hours at an airport with the longest delays."""
    table = make("Worst hours", "origin", "hour (UTC)", ">flights", ">late", ">departure", ">arrival")
    busy = [(key, delays) for key, delays in results.by_hour.items() if delays.flights >= HEAVY]
    for key, delays in sorted(busy, key=lambda item: (-item[1].departure_delay / item[1].flights, item[0].key, item[0].window.start))[:10]:
        table.add_row(
            key.key,
            f"{datetime.fromtimestamp(key.window.start / 1000, UTC):%d %b %H:%M}",
            f"{delays.flights:,}",
            percent(delays.late, delays.flights),
            mean(delays.departure_delay, delays.flights),
            mean(delays.arrival_delay, delays.flights),
        )
    return table


def models(results: Results) -> Table:
    """Return the ten models of aircraft with most flights."""
    table = make("Aircraft", "model", ">flights", ">seats", ">late", ">departure", ">arrival")
    for model, delays in sorted(results.by_model.items(), key=lambda item: (-item[1].flights, item[0]))[:10]:
        table.add_row(
            model,
            f"{delays.flights:,}",
            mean(delays.seats, delays.flights),
            percent(delays.late, delays.flights),
            mean(delays.departure_delay, delays.flights),
            mean(delays.arrival_delay, delays.flights),
        )
    return table


def make(title: str, *columns: str) -> Table:
    """Return an empty table; columns that begin with > are for numbers."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        number = column.startswith(">")
        # Let names wrap when space is short; a truncated number is useless.
        table.add_column(column.lstrip(">"), justify="right" if number else "left", no_wrap=number)
    return table


def mean(total: int, count: int) -> str:
    """Return the mean, to one digit."""
    return f"{total / count:.1f}"


def percent(part: int, whole: int) -> str:
    """Return a share in percent."""
    return f"{100 * part / whole:.0f} %" if whole else "-"
