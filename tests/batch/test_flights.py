"""The flights job with most of its flights as history: the tables are those of polars over all of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from examples.flights import history
from examples.flights.job import Options
from tests.examples import flights_job
from tests.examples.flights_expected import expected

from .conftest import SETTINGS as SPARK

if TYPE_CHECKING:
    from pathlib import Path

    from ks_actors.batch._session import SparkSession

FLIGHTS = 12_000
UNTIL = int(datetime(2013, 1, 12, tzinfo=UTC).timestamp()) * 1000


@pytest.mark.timeout(240)
async def test_history_and_the_live_rest_are_the_whole(tmp_path: Path) -> None:
    """By the local engine: what was backfilled, handed over and then streamed gives the tables of all flights."""
    found = await history.run(Options(tmp_path, "exactly_once_v2", FLIGHTS), UNTIL, parquet=tmp_path / "tables")
    assert flights_job.plain(found.results) == expected(FLIGHTS)
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {
        "delays-by-hour",
        "delays-by-carrier",
        "delays-by-model",
        "flights-dead-letters",
    }


@pytest.mark.timeout(240)
async def test_history_on_spark_and_the_live_rest_are_the_whole(session: SparkSession, tmp_path: Path) -> None:
    """The same by Spark, through all repartition topics of the job."""
    assert session.is_open
    found = await history.run(Options(tmp_path, "exactly_once_v2", FLIGHTS), UNTIL, SPARK)
    assert flights_job.plain(found.results) == expected(FLIGHTS)
