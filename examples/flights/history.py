"""Eleven months of flights as history, the twelfth live, and a report on all of them.

A backfill processes history. Its output is published, an app starts from its state and goes on
live, and the tables are exported.

    python -m examples.flights.history [--until 2013-12-01] [--spark 'local[*]'] [--limit N]
        [--tables DIRECTORY] [--report DIRECTORY]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from datetime import UTC, datetime
from itertools import chain, islice, pairwise
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

from ks_actors import App
from ks_actors.batch import SparkSettings

from . import data, topology
from .job import PATIENCE_MS, Options, configure, opened
from .load import load
from .report import show
from .results import Results, read

if TYPE_CHECKING:
    from ks_actors.batch import Choice
    from ks_actors.log import Log

DECEMBER = int(datetime(2013, 12, 1, tzinfo=UTC).timestamp()) * 1000
# Sums and maxima do not depend on the order of their records.
ALLOW: tuple[Choice, ...] = ("order_after_rekey",)
TABLES = (topology.BY_HOUR, topology.BY_CARRIER, topology.BY_MODEL)
TOPICS = (topology.AIRLINES, topology.DEAD_LETTERS)


class Outcome(NamedTuple):
    """The results and times of a run.

    It has the results, the records of history, and the seconds of backfill, publishing, bootstrap
    and the rest.
    """

    results: Results
    records: int
    seconds: float
    publish_seconds: float
    handover_seconds: float
    live_seconds: float


async def run(options: Options, until: int = DECEMBER, spark: SparkSettings | None = None, tables: Path | None = None) -> Outcome:
    """Run everything on the log of the options; write the tables as Parquet if `tables` is set."""
    async with opened(options) as log:
        return await run_on(log, options, until, spark, tables)


async def run_on(log: Log, options: Options, until: int = DECEMBER, spark: SparkSettings | None = None, tables: Path | None = None) -> Outcome:
    """Run everything on a started log."""
    snapshots = str(options.directory.absolute() / "snapshots")
    await load(log, reported_before(until, options.limit), lambda _: None)
    app = App(topology.build(), configure(options).replace(snapshot_uri=snapshots), log=log)
    with await app.backfill(until=until, allow=ALLOW, engine="local" if spark is None else "spark", spark=spark) as done:
        marks = [perf_counter()]
        await app.publish_backfill(done)
    marks.append(perf_counter())
    await app.seed(snapshots)
    marks.append(perf_counter())
    async with app:
        await load(log, options.limit, lambda _: None)  # as they are reported, while the app runs
        await app.wait_until_caught_up(PATIENCE_MS)
        marks.append(perf_counter())
        if tables is not None:
            await app.export(tables, tables=TABLES, topics=TOPICS)
    results = await read(log)
    published, handed_over, live = (after - before for before, after in pairwise(marks))
    return Outcome(results, done.records, done.seconds, published, handed_over, live)


def reported_before(time_ms: int, limit: int) -> int:
    """Return the number of flights, of the first `limit`, reported before a time."""
    rows = islice(chain.from_iterable(data.months()), limit)
    return next((number for number, row in enumerate(rows) if row.reported >= time_ms), limit)


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights.history", description="Flights of 2013: history, and what came then.")
    parser.add_argument("--until", default="2013-12-01", help="where history ends (default: %(default)s)")
    parser.add_argument("--spark", metavar="MASTER", help="run history on Spark: local[*], spark://host:port …")
    parser.add_argument("--limit", type=int, default=data.FLIGHTS, metavar="N", help="take the first N flights only")
    parser.add_argument("--tables", type=Path, metavar="DIRECTORY", help="write the tables there, as Parquet")
    parser.add_argument(
        "--report", type=Path, metavar="DIRECTORY", help="write a report with plots there (needs matplotlib), and the tables below it"
    )
    given = parser.parse_args()
    until = int(datetime.fromisoformat(given.until).replace(tzinfo=UTC).timestamp()) * 1000
    spark = None if given.spark is None else SparkSettings(master=given.spark)
    tables: Path | None = given.tables or (None if given.report is None else given.report / "tables")
    console = Console(width=None if sys.stdout.isatty() else 120)
    with tempfile.TemporaryDirectory() as directory:
        outcome = asyncio.run(run(Options(Path(directory), "exactly_once_v2", given.limit), until, spark, tables))
    show(console, outcome.results)
    rate = outcome.records / outcome.seconds
    console.print(f"history: {outcome.records:,} records in {outcome.seconds:.1f} s: {rate:,.0f} records/s", highlight=False)
    steps = f"published in {outcome.publish_seconds:.1f} s, handed over in {outcome.handover_seconds:.1f} s"
    console.print(f"{steps}, the rest came in {outcome.live_seconds:.1f} s", highlight=False)
    if given.report is not None and tables is not None:
        from .plots import write_report  # noqa: PLC0415 - it needs packages that the job does without

        console.print(f"report: {write_report(tables, given.report, until)}", highlight=False)


if __name__ == "__main__":
    main()
