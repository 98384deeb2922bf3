"""A process that asks Spark in the middle of a stream, and has a streaming query run.

`python -m tests.ks_actors.batch.spark.asking <settings as JSON> <directory>`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec

from ks_actors import JobFailed, Record
from ks_actors.batch import QueryEnded, QueryProgress, SparkBridge, SparkSettings
from tests.ks_actors.batch.spark.test_queries import listening, rates

SAID = [
    "[('a', 2, 5), ('b', 4, 6)]",
    "job wrong has failed: AnalysisException: [TABLE_OR_VIEW_NOT_FOUND]",
    "True ['QueryStarted', 'QueryEnded'] None",
]
"""The lines that it prints."""


def doubled(_: Any, rows: Any) -> Any:
    return rows.selectExpr("key", "value * 2 as value", "timestamp")


async def main(settings: SparkSettings, place: Path) -> list[str]:
    """Do the part of a bridge that is not about backfills."""
    told = []
    async with SparkBridge(settings) as bridge, listening() as heard:
        found = await bridge.function(doubled, value_type="bigint")([Record("a", 1, 5), Record("b", 2, 6)])
        told.append(str([(record.key, record.value, record.timestamp) for record in found]))
        try:
            await bridge.run(lambda spark: spark.table("nowhere").count(), name="wrong")
        except JobFailed as failed:
            name, _, said = str(failed).partition("-")
            told.append(f"{name} has failed: {said.partition(': ')[2].partition(']')[0]}]")
        await bridge.start_query("rate", rates(place / "rates"), str(place / "checkpoint"), listener=heard.ref)
        await heard.until(QueryProgress)
        stopped = await bridge.stop_query("rate")
        ended = await heard.until(QueryEnded)
        told.append(f"{stopped} {heard.names()} {ended.error}")
    return told


if __name__ == "__main__":
    done = asyncio.run(main(SparkSettings(**msgspec.json.decode(sys.argv[1])), Path(sys.argv[2])))
    sys.stdout.write("\n".join(done) + "\n")
