"""The flights job with most of its flights as history: the tables are those of polars over all of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from examples.flights import history
from examples.flights.job import Options
from examples.flights.plots import carriers_of, rows, write_report
from ks_actors.batch.spark._session import SparkSession
from tests.examples import flights_job
from tests.examples.flights_expected import expected
from tests.ks_actors.batch.conftest import SETTINGS as SPARK

FLIGHTS = 12_000
UNTIL = int(datetime(2013, 1, 12, tzinfo=UTC).timestamp()) * 1000
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.extended
@pytest.mark.heavy("a backfill, a stream and a report of 12,000 flights")
@pytest.mark.timeout(240)
async def test_history_and_the_live_rest_are_the_whole(tmp_path: Path) -> None:
    """By the local engine: a backfilled, published, loaded and then streamed history gives the tables of all flights, and a report on them."""
    tables = tmp_path / "tables"
    found = await history.run(Options(tmp_path, "exactly_once_v2", FLIGHTS), UNTIL, tables=tables)
    whole = expected(FLIGHTS)
    assert flights_job.plain(found.results) == whole
    assert {path.name for path in tables.iterdir()} == {*history.TABLES, *history.TOPICS}
    hours = {(row["key"], round(row["window_start"].timestamp() * 1000)): row["value"]["flights"] for row in rows(tables, "delays-by-hour")}
    assert hours == {place: numbers[0] for place, numbers in whole.by_hour.items()}
    assert len(rows(tables, "flights-dead-letters")) == len(whole.dead_letters)

    report = write_report(tables, tmp_path / "report", UNTIL)
    carriers = carriers_of(rows(tables, "delays-by-carrier"), rows(tables, "airlines"))
    assert sum(carrier.flights for carrier in carriers) == sum(hours.values())
    said = report.read_text()
    assert f"{sum(hours.values()):,} flights left" in said
    assert all(f"| {carrier.airline} | {carrier.flights:,} |" in said for carrier in carriers)
    for name in ("weeks", "day", "carriers"):
        assert (tmp_path / "report" / f"{name}.png").read_bytes().startswith(PNG)
        assert f"({name}.png)" in said


@pytest.mark.heavy("a backfill and a stream of 12,000 flights")
@pytest.mark.timeout(240)
async def test_history_on_spark_and_the_live_rest_are_the_whole(session: SparkSession, tmp_path: Path) -> None:
    """The same by Spark, through all repartition topics of the job."""
    assert session.is_open
    found = await history.run(Options(tmp_path, "exactly_once_v2", FLIGHTS), UNTIL, SPARK)
    assert flights_job.plain(found.results) == expected(FLIGHTS)
