"""Records of topics as Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ks_actors.batch._reading import LogRange
from ks_actors.batch.tables._columns import HEADERS, TopicColumns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from ks_actors.log import TopicPartition
    from ks_actors.records import Batch

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)


def write_parquet(
    directory: Path,
    partitions: Iterable[tuple[TopicPartition, Iterable[Batch]]],
    topics: Collection[str] = (),
) -> dict[str, int]:
    """Write one file per partition, and return the number of records by topic. Blocks.

    Each file appears only when it is complete. Offsets count from 0 in each partition. Files of
    other partitions of these `topics`, which an earlier run has left, are removed at the end.
    """
    columns = TopicColumns(SCHEMA, None, None)
    counts: dict[str, int] = {}
    new: set[Path] = set()
    for where, batches in partitions:
        topic = directory / where.topic
        topic.mkdir(parents=True, exist_ok=True)
        place = LogRange(where.topic, where.partition, 0, 0)
        file = topic / f"{where.partition}.parquet"
        rows = write_file(file, SCHEMA, (columns.of(batch, place) for batch in batches))
        counts[where.topic] = counts.get(where.topic, 0) + rows
        new.add(file)
    for topic in (directory / name for name in {*topics, *counts}):
        for file in set(topic.glob("*.parquet")) - new:
            # A reader of the directory would take rows of an earlier run for rows of this run.
            if file.stem.isdecimal():
                file.unlink(missing_ok=True)
    return counts


def write_file(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write a file, and return its number of rows. Blocks.

    The file appears only when it is complete.
    """
    draft, count = path.with_name(f".{path.name}.part"), 0
    try:
        with pq.ParquetWriter(draft, schema, compression="zstd") as writer:
            for batch in batches:
                writer.write_batch(batch)
                count += batch.num_rows
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    draft.replace(path)
    return count
