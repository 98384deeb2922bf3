"""History in a real Kafka, on Spark, and the stream that goes on from there."""

from __future__ import annotations

from pathlib import Path

from ks_actors.batch.spark._session import SparkSession
from tests.kafka.broker import Broker
from tests.ks_actors.batch.backfill.killed_history import UNTIL, handed_over
from tests.ks_actors.batch.backfill.test_kills import ON_SPARK
from tests.ks_actors.batch.driver import Order
from tests.ks_actors.log.helpers import group_name


async def test_a_backfill_on_spark_and_the_live_tail_are_a_stream_over_all_records(
    session: SparkSession, kafka_broker: Broker, tmp_path: Path
) -> None:
    """Spark's tasks read Kafka by themselves; record for record and key for key, with several partitions, behind a repartition topic too."""
    assert session.is_open
    name = group_name()
    log = f"kafka://{kafka_broker.bootstrap}"
    options = {"application_id": name, "prefix": f"{name}-", "until": UNTIL, "engine": "spark", "spark": ON_SPARK}
    await handed_over(Order(what="backfill", log=log, directory=str(tmp_path), **options))
