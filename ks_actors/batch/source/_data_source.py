"""Spark data source for topics and stores: `spark.read.format("ks_actors")`.

This module imports pyspark, so other modules import it only when they use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema

from ks_actors._errors import ConfigError
from ks_actors.batch._reading import LogRange, LogReader, check_read
from ks_actors.batch._task_errors import carried
from ks_actors.batch.source._filters import Pushed
from ks_actors.batch.source._record_batches import Records
from ks_actors.batch.source._source_options import (
    VERSIONED,
    SourceOptions,
    known_columns,
    read_options,
)
from ks_actors.batch.source._store_source import StoreReader
from ks_actors.batch.tables import latest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, MutableMapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ks_actors.batch._reading import Bounds


class _Piece(InputPartition):
    def __init__(self, what: LogRange) -> None:
        super().__init__(what)
        self.what = what


def _read(
    options: SourceOptions, schema: pa.Schema, what: LogRange, keys: frozenset[Any] | None
) -> Iterator[pa.RecordBatch]:
    with carried(), LogReader(options.address) as reader:
        batches: Iterable[Any] = reader.read(what)
        if options.latest:
            batches = (latest(batches, versioned=options.store_kind == VERSIONED),)
        yield from Records(options, schema, what.topic, keys).of(batches, what)


class TopicReader(DataSourceReader):
    """Reader of partition ranges, each in its own task.

    Large ranges are split over several tasks, unless only the latest record of each key is wanted.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema: Any = to_arrow_schema(schema, timezone="UTC")
        self._pushed = Pushed(offsets=not options.latest)  # `latest` needs all records

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - pyspark's name
        """Take the filters that prune the read; yield the rest for Spark."""
        yield from self._pushed.take(filters)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the current ranges; later records are not included."""
        options = self._options
        with LogReader(options.address) as reader:
            ranges = reader.ranges(options.topics, self._pushed.within(options.bounds))
        _check_offsets(options.bounds, ranges)
        wanted = [
            self._pushed.narrow(one)
            for one in ranges
            if self._pushed.wants(one.partition, one.topic)
        ]
        wanted = [one for one in wanted if one.start < one.end]
        return [
            _Piece(piece)
            for one in wanted
            for piece in ([one] if options.latest else one.split(options.most))
        ]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Read one range; runs in a task."""
        return _read(self._options, self._schema, partition.what, self._pushed.keys)


class TopicStreamReader(DataSourceStreamReader):
    """Streaming reader: micro-batches with exact offsets, which Spark keeps in its checkpoint."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        if options.latest:
            raise ConfigError(
                "latest: a stream needs every record: read the topic without it, or use spark.read"
            )
        self._options = options
        self._schema: Any = to_arrow_schema(schema, timezone="UTC")

    def _ranges(self, bounds: Bounds) -> list[LogRange]:
        with LogReader(self._options.address) as reader:
            ranges = reader.ranges(self._options.topics, bounds)
        _check_offsets(bounds, ranges)
        return ranges

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - pyspark's name
        """Return the start offsets of the stream."""
        return _by_topic((one, one.start) for one in self._ranges(self._options.bounds))

    def latestOffset(  # noqa: N802 - pyspark's name
        self,
        start: dict[str, Any],
        limit: Any,  # noqa: ARG002 - pyspark's arguments
    ) -> dict[str, Any]:
        """Return the current end offsets; a partition never moves back."""
        # The start offsets may be deleted by now, so they are not checked.
        ends = _by_topic(
            (one, one.end)
            for one in self._ranges(replace(self._options.bounds, from_ms=None, starts={}))
        )
        return {
            topic: {
                number: max(end, start.get(topic, {}).get(number, 0))
                for number, end in numbers.items()
            }
            for topic, numbers in ends.items()
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges of one micro-batch."""
        ranges = [
            LogRange(topic, int(number), start.get(topic, {}).get(number, 0), behind)
            for topic, numbers in end.items()
            for number, behind in numbers.items()
        ]
        return [_Piece(piece) for one in ranges for piece in one.split(self._options.most)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Read one range; runs in a task."""
        return _read(self._options, self._schema, partition.what, None)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: reading does not remove records."""


def _check_offsets(bounds: Bounds, ranges: Sequence[LogRange]) -> None:
    """Raise ConfigError for offsets of topics or partitions that the source does not read."""
    check_read("starting_offsets", bounds.starts, ranges, by="this source")
    check_read("ending_offsets", bounds.ends, ranges, by="this source")


def _by_topic(offsets: Iterable[tuple[LogRange, int]]) -> dict[str, dict[str, int]]:
    """Return offsets by topic and partition, with partition numbers as text, as in JSON."""
    found: dict[str, dict[str, int]] = {}
    for one, offset in offsets:
        found.setdefault(one.topic, {})[str(one.partition)] = offset
    return found


class KsActorsSource(DataSource):
    """Spark data source for topics, and for stores in changelogs, snapshots and running apps."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._read_options = read_options(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return "ks_actors"

    def schema(self) -> str:
        """Return the selected columns, as DDL."""
        return self._read_options.ddl

    def _checked(self, schema: StructType) -> StructType:
        known = known_columns(self._read_options.store_kind)
        strange = [name for name in schema.fieldNames() if name not in known]
        if strange:
            raise ConfigError(
                f"columns {', '.join(strange)} do not exist; the columns are {', '.join(known)}"
            )
        return schema

    def reader(self, schema: StructType) -> TopicReader | StoreReader:
        """Return a reader for a one-time read of ranges or of a store."""
        if self._read_options.place is not None:
            return StoreReader(self._read_options, self._checked(schema))
        return TopicReader(self._read_options, self._checked(schema))

    def streamReader(self, schema: StructType) -> TopicStreamReader:  # noqa: N802 - pyspark's name
        """Return a streaming reader. Raises ConfigError for a store outside the log."""
        if self._read_options.place is not None:
            raise ConfigError(
                "a store cannot be read as a stream: read its changelog, or the topic that it is "
                "written to"
            )
        return TopicStreamReader(self._read_options, self._checked(schema))
