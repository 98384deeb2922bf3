"""Eleven months of flights as history, the twelfth as it comes: a backfill leaves the state, an app takes it over and goes on.

python -m examples.flights.history [--until 2013-12-01] [--spark 'local[*]'] [--limit N] [--parquet DIRECTORY]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from ks_actors import App
from ks_actors.batch import SparkSettings
from ks_actors.serdes import STRING, json

from . import data, topology
from .job import PATIENCE_MS, Options, configure, opened
from .load import load
from .model import CarrierReport, HourlyDelays, ModelDelays
from .report import show
from .results import DeadLetter, Results, read

if TYPE_CHECKING:
    from ks_actors.batch import Backfill, Choice
    from ks_actors.serdes import Serde

DECEMBER = int(datetime(2013, 12, 1, tzinfo=UTC).timestamp()) * 1000
# A sum does not depend on the order of what is added, nor does the worst of all.
ALLOW: tuple[Choice, ...] = ("order_after_rekey",)


class Outcome(NamedTuple):
    """What came of it: the results, records of history and how many seconds they took, seconds of handing over, and of the rest."""

    results: Results
    records: int
    seconds: float
    handover_seconds: float
    live_seconds: float


async def run(options: Options, until: int = DECEMBER, spark: SparkSettings | None = None, parquet: Path | None = None) -> Outcome:
    """Do all of it."""
    snapshots = str(options.directory.absolute() / "snapshots")
    async with opened(options) as log:
        await load(log, options.limit, lambda _: None)
        app = App(topology.build(), configure(options).replace(snapshot_uri=snapshots), log=log)
        done = await app.backfill(until=until, allow=ALLOW, engine="local" if spark is None else "spark", spark=spark)
        with done:
            history = await asyncio.to_thread(results_of, done)
            if parquet is not None:
                await asyncio.to_thread(done.to_parquet, parquet)
        began = perf_counter()
        await app.seed(snapshots)
        seeded = perf_counter()
        async with app:
            await app.wait_until_caught_up(PATIENCE_MS)
            ended = perf_counter()
        live = await read(log)
    return Outcome(together(history, live), done.records, done.seconds, seeded - began, ended - seeded)


def results_of(done: Backfill) -> Results:
    """Return what history has found out."""
    letters = [
        DeadLetter(row, headers)
        for where in done.partitions
        if where.topic == topology.DEAD_LETTERS
        for batch in done.read(where)
        for row, headers in zip(batch.values, batch.headers or [()] * len(batch), strict=True)
    ]
    by_hour = table(done, topology.BY_HOUR, topology.HOURLY_KEY, json(HourlyDelays))
    by_carrier = table(done, topology.BY_CARRIER, STRING, json(CarrierReport))
    return Results(by_hour, by_carrier, table(done, topology.BY_MODEL, STRING, json(ModelDelays)), letters)


def table(done: Backfill, topic: str, key: Serde[Any], value: Serde[Any]) -> dict[Any, Any]:
    """Return the last value of each key that history has written to a topic."""
    last: dict[bytes, bytes] = {}
    for where in done.partitions:
        for batch in done.read(where) if where.topic == topic else ():
            last.update(zip(batch.keys, batch.values, strict=True))
    decode_key, decode_value = key.deserializer(topic, is_key=True), value.deserializer(topic)
    return {decode_key(raw): decode_value(row) for raw, row in last.items()}


def together(history: Results, live: Results) -> Results:
    """Return tables with what came later over what was there, and all dead letters."""
    by_hour, by_carrier = {**history.by_hour, **live.by_hour}, {**history.by_carrier, **live.by_carrier}
    return Results(by_hour, by_carrier, {**history.by_model, **live.by_model}, history.dead_letters + live.dead_letters)


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights.history", description="Flights of 2013: history, and what came then.")
    parser.add_argument("--until", default="2013-12-01", help="where history ends (default: %(default)s)")
    parser.add_argument("--spark", metavar="MASTER", help="run history on Spark: local[*], spark://host:port …")
    parser.add_argument("--limit", type=int, default=data.FLIGHTS, metavar="N", help="take the first N flights only")
    parser.add_argument("--parquet", type=Path, metavar="DIRECTORY", help="write what history has found out there, as Parquet")
    given = parser.parse_args()
    until = int(datetime.fromisoformat(given.until).replace(tzinfo=UTC).timestamp()) * 1000
    spark = None if given.spark is None else SparkSettings(master=given.spark)
    console = Console(width=None if sys.stdout.isatty() else 120)
    with tempfile.TemporaryDirectory() as directory:
        outcome = asyncio.run(run(Options(Path(directory), "exactly_once_v2", given.limit), until, spark, given.parquet))
    show(console, outcome.results)
    rate = outcome.records / outcome.seconds
    console.print(f"history: {outcome.records:,} records in {outcome.seconds:.1f} s: {rate:,.0f} records/s", highlight=False)
    console.print(f"handed over in {outcome.handover_seconds:.1f} s, the rest came in {outcome.live_seconds:.1f} s", highlight=False)


if __name__ == "__main__":
    main()
