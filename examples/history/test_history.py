"""History and then the stream give what one stream over all payments gives.

Run: python -m pytest test_history.py  (the part on Spark needs Java)
"""

import asyncio
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from history import PAYMENTS, TOTALS, Total, app, backfill, live, load, read, topology
from pyarrow import parquet

from ks_actors import Publisher
from ks_actors.batch import SparkSettings
from ks_actors.testing import TopologyTestDriver

BEGAN = datetime(2025, 1, 1, tzinfo=UTC)
UNTIL_MS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
LIVE = [("c-0", 5), ("new", 1), ("c-0", 7)]
WITH_SPARK = pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Write two files of payments; as those of a customer are in order, so are their totals."""
    files = tmp_path / "files"
    files.mkdir()
    for half in (0, 1):
        numbers = range(150 * half, 150 * (half + 1))
        rows = [{"customer": f"c-{n % 7}", "cents": n, "at": BEGAN + timedelta(days=n)} for n in numbers]
        parquet.write_table(pa.Table.from_pylist(rows), files / f"{half}.parquet")
    return files


def by_customer(records: list[Any]) -> dict[str, list[Total]]:
    found: dict[str, list[Total]] = {}
    for customer, total in records:
        found.setdefault(customer, []).append(total)
    return found


@pytest.mark.parametrize("spark", [None, pytest.param("local[2]", marks=WITH_SPARK)], ids=["local", "spark"])
def test_history_and_stream_are_as_one_stream(spark: str | None, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each total is in its topic once, although the backfill is repeated in this process."""
    monkeypatch.setenv("KS_ACTORS_LOG", f"embedded://{tmp_path}/log")
    monkeypatch.setenv("KS_ACTORS_STATE_DIR", str(tmp_path / "state"))
    settings = None if spark is None else SparkSettings(master=spark, driver_memory="1g")
    with TopologyTestDriver(topology()) as driver:
        payments = driver.create_input_topic(PAYMENTS)
        for record in read(files):
            payments.pipe_input(record.key, record.value, record.timestamp)
        payments.pipe_key_value_list(LIVE)
        expected = by_customer(driver.create_output_topic(TOTALS).read_key_values_to_list())

    async def main() -> None:
        await load(files, tmp_path)
        assert await backfill(UNTIL_MS, tmp_path, settings) == 300
        assert await backfill(UNTIL_MS, tmp_path) == 300
        found = await live(tmp_path, LIVE)
        assert found == {customer: totals[-1] for customer, totals in expected.items()}
        async with Publisher(app(tmp_path).config) as publisher:
            written = [(each.key, each.value) async for each in publisher.records(TOTALS, until="end")]
        assert by_customer(written) == expected

    asyncio.run(main())
