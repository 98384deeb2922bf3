"""Topics as DataFrames: `spark.read.format("ks_actors")`. Imports pyspark: nothing else of ks_actors imports this when it is imported itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema

from ks_actors._errors import ConfigError
from ks_actors.batch._columns import TopicColumns, latest
from ks_actors.batch._failures import carried
from ks_actors.batch._reading import LogRange, LogReader
from ks_actors.batch._source_options import COLUMNS, SourceOptions, read_options, serde_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, MutableMapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType


class _Piece(InputPartition):
    def __init__(self, what: LogRange) -> None:
        super().__init__(what)
        self.what = what


class _Offset:
    """What filters have left of the offsets of each partition."""

    def __init__(self) -> None:
        self.least: int = 0
        self.end: int | None = None

    def narrow(self, one: LogRange) -> LogRange:
        start = max(one.start, self.least)
        end = one.end if self.end is None else min(one.end, self.end)
        return LogRange(one.topic, one.partition, start, max(start, end))


def _read(options: SourceOptions, schema: pa.Schema, what: LogRange, keys: frozenset[Any] | None) -> Iterator[pa.RecordBatch]:
    with carried(), LogReader(options.address) as reader:
        columns = TopicColumns(schema, *_decoders(options, what.topic))
        batches: Iterable[Any] = reader.read(what)
        for batch in (latest(batches),) if options.latest else batches:
            decode = _decoders(options, what.topic)[0]
            wanted = batch
            if keys is not None:
                wanted = batch.select([key is not None and (key if decode is None else decode(key)) in keys for key in batch.keys])
            if len(wanted):
                yield columns.of(wanted, what)


def _decoders(options: SourceOptions, topic: str) -> tuple[Any, Any]:
    key = None if options.key_serde is None else serde_of(options.key_serde).deserializer(topic, is_key=True)
    value = None if options.value_serde is None else serde_of(options.value_serde).deserializer(topic)
    return key, value


class TopicReader(DataSourceReader):
    """Read ranges of partitions, each in a task of its own; large ones in several, unless only the latest of each key is wanted."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema: Any = to_arrow_schema(schema, timezone="UTC")
        self._partitions: frozenset[int] | None = None
        self._keys: frozenset[Any] | None = None
        self._offset = _Offset()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - pyspark's name
        """Take what can be known before anything is read; yield the rest, which Spark does."""
        for one in filters:
            if not self._takes(one):
                yield one

    def _takes(self, one: Filter) -> bool:
        match one:
            case EqualTo(("partition",), value):
                self._partitions = _met(self._partitions, (value,))
            case In(("partition",), value):
                self._partitions = _met(self._partitions, value)
            case EqualTo(("key",), value):
                self._keys = _met(self._keys, map(_plain, (value,)))
            case In(("key",), value):
                self._keys = _met(self._keys, map(_plain, value))
            case _:
                return self._narrows(one)
        return True

    def _narrows(self, one: Filter) -> bool:
        offset = self._offset
        if self._options.latest:  # the latest of all that there is, not of what a filter leaves
            return False
        match one:
            case EqualTo(("offset",), value):
                offset.least, offset.end = max(offset.least, value), value + 1 if offset.end is None else min(offset.end, value + 1)
            case GreaterThan(("offset",), value):
                offset.least = max(offset.least, value + 1)
            case GreaterThanOrEqual(("offset",), value):
                offset.least = max(offset.least, value)
            case LessThan(("offset",), value):
                offset.end = value if offset.end is None else min(offset.end, value)
            case LessThanOrEqual(("offset",), value):
                offset.end = value + 1 if offset.end is None else min(offset.end, value + 1)
            case _:
                return False
        return True

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges, as they are now: whatever is written later is not in them."""
        options = self._options
        with LogReader(options.address) as reader:
            ranges = reader.ranges(options.topics, options.bounds)
        wanted = [self._offset.narrow(one) for one in ranges if self._partitions is None or one.partition in self._partitions]
        wanted = [one for one in wanted if one.start < one.end]
        return [_Piece(piece) for one in wanted for piece in ([one] if options.latest else one.split(options.most))]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Read one range; in a task."""
        return _read(self._options, self._schema, partition.what, self._keys)


class TopicStreamReader(DataSourceStreamReader):
    """Read what comes, by micro-batches with exact offsets; Spark keeps them in its checkpoint."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        if options.latest:
            raise ConfigError("latest: a stream has every record: read the topic as it is, or by spark.read")
        self._options = options
        self._schema: Any = to_arrow_schema(schema, timezone="UTC")

    def _offsets(self, *, end: bool) -> dict[str, dict[str, int]]:
        with LogReader(self._options.address) as reader:
            ranges = reader.ranges(self._options.topics, self._options.bounds)
        found: dict[str, dict[str, int]] = {}
        for one in ranges:
            found.setdefault(one.topic, {})[str(one.partition)] = one.end if end else one.start
        return found

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - pyspark's name
        """Return where the stream begins."""
        return self._offsets(end=False)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002, N802 - pyspark's name and arguments
        """Return where what can be read now ends; a partition is never behind where it was."""
        ends = self._offsets(end=True)
        return {topic: {number: max(end, start.get(topic, {}).get(number, 0)) for number, end in numbers.items()} for topic, numbers in ends.items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges of one micro-batch."""
        ranges = [
            LogRange(topic, int(number), start.get(topic, {}).get(number, 0), behind)
            for topic, numbers in end.items()
            for number, behind in numbers.items()
        ]
        return [_Piece(piece) for one in ranges for piece in one.split(self._options.most)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Read one range; in a task."""
        return _read(self._options, self._schema, partition.what, None)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: records stay where they are."""


class KsActorsSource(DataSource):
    """Topics of a log, and changelogs of stores."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._read_options = read_options(options)

    @classmethod
    def name(cls) -> str:
        """Return what it is called in `format(…)`."""
        return "ks_actors"

    def schema(self) -> str:
        """Return the columns: those that were asked for, of all that there are."""
        return self._read_options.ddl

    def _checked(self, schema: StructType) -> StructType:
        strange = [name for name in schema.fieldNames() if name not in COLUMNS]
        if strange:
            raise ConfigError(f"there are no columns {', '.join(strange)}; there are {', '.join(COLUMNS)}")
        return schema

    def reader(self, schema: StructType) -> TopicReader:
        """Return what reads a range once."""
        return TopicReader(self._read_options, self._checked(schema))

    def streamReader(self, schema: StructType) -> TopicStreamReader:  # noqa: N802 - pyspark's name
        """Return what reads on and on."""
        return TopicStreamReader(self._read_options, self._checked(schema))


def _met(known: frozenset[Any] | None, wanted: Iterable[Any]) -> frozenset[Any]:
    found = frozenset(wanted)
    return found if known is None else known & found


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value
