"""Years of payments from Parquet files, then those of today: totals as of one stream.

Shows: history loaded into a topic, a backfill of it by the operators of the stream itself (in
this process, or on Spark), its results in their topic, and an app that goes on from its state.

Run: python history.py
On Spark: python history.py 'local[2]'  (or spark://host:7077; it needs Java)
On Kafka: KS_ACTORS_BOOTSTRAP_SERVERS=localhost:9092 python history.py
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyarrow import parquet

from ks_actors import App, Materialized, Publisher, Record, StreamsBuilder, StreamsConfig, Topic, Topology
from ks_actors.batch import Engine, SparkSettings


@dataclass(frozen=True)
class Total:
    payments: int = 0
    cents: int = 0


PAYMENTS = Topic("payments", str, int)  # by customer, in cents
TOTALS = Topic("totals", str, Total)
TOPICS = {PAYMENTS: 4, TOTALS: 4}


def add(_customer: str, cents: int, total: Total) -> Total:
    return Total(total.payments + 1, total.cents + cents)


def topology() -> Topology:
    """Return the topology, which knows nothing of history."""
    builder = StreamsBuilder()
    payments = builder.stream(PAYMENTS).group_by_key()
    payments.aggregate(Total, add, Materialized("totals")).to_stream().to(TOTALS)
    return builder.build()


def app(place: Path) -> App:
    """Return the app; snapshots are where backfill and app, on all their machines, find them."""
    config = StreamsConfig.load(
        application_id="history",
        processing_guarantee="exactly_once_v2",
        snapshot_uri=(place / "snapshots").as_uri(),
    )
    return App(topology(), config, topics=TOPICS)


def read(files: Path) -> Iterator[Record[str, int]]:
    """Yield the payments of Parquet files, a batch of rows in memory at a time."""
    for file in sorted(files.glob("*.parquet")):
        for batch in parquet.ParquetFile(file).iter_batches(columns=["customer", "cents", "at"]):
            for row in batch.to_pylist():
                yield Record(row["customer"], row["cents"], int(row["at"].timestamp() * 1000))


async def load(files: Path, place: Path) -> None:
    """Write the payments of the files to their topic. Do it once: it writes them again."""
    async with Publisher(app(place).config) as publisher:
        await publisher.create_topics(TOPICS)
        await publisher.send_many(PAYMENTS, read(files))


async def backfill(until_ms: int, place: Path, spark: SparkSettings | None = None) -> int:
    """Process history up to a time, publish its results, and return the number of records.

    Do it before the first start of the app. It may be repeated, after a kill for example:
    nothing comes twice.
    """
    job = app(place)
    engine: Engine = "local" if spark is None else "spark"
    with await job.backfill(until=until_ms, engine=engine, spark=spark, directory=place) as done:
        await job.publish_backfill(done)
    # The state of the backfill becomes that of the app, at the offsets where history ends.
    await job.seed((place / "snapshots").as_uri(), if_seeded="skip")
    return done.records


async def live(place: Path, payments: list[tuple[str, int]]) -> dict[str, Total]:
    """Run the app for some payments of today, and return the totals of all customers."""
    async with app(place) as running:
        await running.send_many(PAYMENTS, payments)
        await running.wait_until_caught_up()
        return dict(await running.store("totals", str, Total).all())


async def demo(place: Path, spark: SparkSettings | None) -> None:
    """Make files of two years, process them, and then some payments of today."""
    files = place / "files"
    files.mkdir()
    for year in (2024, 2025):
        began = datetime(year, 1, 1, tzinfo=UTC)
        rows = [{"customer": f"c-{n % 7}", "cents": n, "at": began + timedelta(hours=12 * n)} for n in range(730)]
        parquet.write_table(pa.Table.from_pylist(rows), files / f"{year}.parquet")
    await load(files, place)
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    records = await backfill(now_ms, place, spark)
    print(f"{records} payments of history")
    for customer, total in sorted((await live(place, [("c-0", 100), ("new", 1)])).items()):
        print(f"{customer}: {total}")


if __name__ == "__main__":
    with TemporaryDirectory() as directory:
        if "KS_ACTORS_BOOTSTRAP_SERVERS" not in os.environ:
            os.environ["KS_ACTORS_LOG"] = f"embedded://{directory}/log"
        os.environ.setdefault("KS_ACTORS_STATE_DIR", f"{directory}/state")
        asyncio.run(demo(Path(directory), SparkSettings(master=sys.argv[1]) if sys.argv[1:] else None))
