"""A compiled plan of ksql as a topology: each step becomes a call of the DSL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ks_actors.dsl import Consumed, Materialized, Produced, StreamsBuilder
from ks_actors.processors import Processor
from ks_actors.serdes import session_windowed, windowed
from tests.judges.ksql import grouping, joins, stateless, times
from tests.judges.ksql.codec import KEYS, ROWS
from tests.judges.ksql.columns import relation
from tests.judges.ksql.flow import Flow, named, on_rows, source_columns
from tests.judges.ksql.reasons import LeftOut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ks_actors import Record
    from ks_actors.config import StreamsConfig
    from ks_actors.serdes import Serde
    from ks_actors.topology import Topology
    from tests.judges.ksql.columns import Relation
    from tests.judges.ksql.flow import Row, Step

ONE_SOURCE: Final[Mapping[str, Callable[[Step, Flow], Flow]]] = {
    "streamAggregate": grouping.aggregate,
    "streamFilter": stateless.filtered,
    "streamFlatMap": stateless.flat_map,
    "streamGroupBy": grouping.group_by,
    "streamGroupByKey": grouping.group_by_key,
    "streamSelect": stateless.select,
    "streamSelectKey": stateless.select_key,
    "streamWindowedAggregate": grouping.windowed_aggregate,
    "tableAggregate": grouping.aggregate,
    "tableFilter": stateless.filtered,
    "tableGroupBy": grouping.group_by,
    "tableSelect": stateless.select,
    "tableSelectKey": stateless.select_key,
    "tableSuppress": grouping.suppress,
}
TWO_SOURCES: Final[Mapping[str, Callable[[Step, Flow, Flow], Flow]]] = {
    "fkTableTableJoin": joins.foreign_key,
    "streamStreamJoin": joins.stream_stream,
    "streamTableJoin": joins.stream_table,
    "tableTableJoin": joins.table_table,
}
SOURCES: Final = ("streamSource", "tableSource", "windowedStreamSource", "windowedTableSource")


def step_name(step: Step) -> str:
    """Return a step's type without its version."""
    return str(step["@type"]).rstrip("0123456789").removesuffix("V")


def steps(step: Step) -> list[Step]:
    """Return a step and all above it."""
    above = [step[name] for name in ("source", "leftSource", "rightSource") if name in step]
    return [step, *(each for source in above for each in steps(source))]


class Plan:
    """One query: its topology, the topics that it reads, and the one that it writes."""

    def __init__(self, query: Step) -> None:
        self.sink: Step = query["physicalPlan"]
        self.inputs: dict[str, Source] = {}
        self._builder = StreamsBuilder()
        if step_name(self.sink) not in {"streamSink", "tableSink"}:
            raise LeftOut(f"step {self.sink['@type']}")
        last = self._flow(self.sink["source"])
        stream = last.node if last.kind == "stream" else last.node.to_stream()
        if self.sink.get("timestampColumn"):
            stream = stream.process(lambda: _Timestamps(self.sink["timestampColumn"]))
        self.output: str = self.sink["topicName"]
        self.key_serde: Serde[Any] = last.key_serde
        stream.to(self.output, Produced(last.key_serde, ROWS))

    def topology(self, config: StreamsConfig) -> Topology:
        return self._builder.build(config)

    def _flow(self, step: Step) -> Flow:
        name = step_name(step)
        if name in SOURCES:
            return self._source(step, "table" if "able" in name else "stream")
        if name in ONE_SOURCE:
            return ONE_SOURCE[name](step, self._flow(step["source"]))
        if name in TWO_SOURCES:
            return TWO_SOURCES[name](step, self._flow(step["leftSource"]), self._flow(step["rightSource"]))
        raise LeftOut(f"step {step['@type']}")

    def _source(self, step: Step, kind: str) -> Flow:
        topic = step["topicName"]
        if topic in self.inputs:
            raise LeftOut("a topic that a query reads twice")
        made = Source(relation(topic, step["sourceSchema"], step["formats"], step.get("windowInfo")), step.get("timestampColumn"))
        self.inputs[topic] = made
        names = made.relation.key.names
        consumed: Consumed[Any, Any] = Consumed(
            made.key_serde, ROWS, timestamp_extractor=lambda record, _: made.time(record.key, record.value, record.timestamp)
        )

        def with_key(key: Any, row: Row) -> Row:
            window = getattr(key, "window", None)
            bounds = {} if window is None else {"WINDOWSTART": window.start, "WINDOWEND": window.end}
            return {**row, **named(names, key), **bounds}

        columns = (*source_columns(made.relation), *(("WINDOWSTART", "WINDOWEND") if made.relation.window else ()))
        if kind == "stream":
            node: Any = self._builder.stream(topic, consumed).map_values(on_rows(with_key))
            return Flow("stream", node, names, made.key_serde, columns)
        # ksql keeps a table with its rows as they came, and a second one with all their columns, which joins read.
        table = self._builder.table(topic, consumed, Materialized(None, made.key_serde, ROWS))
        return Flow("table", table.map_values(on_rows(with_key), Materialized(None, made.key_serde, ROWS)), names, made.key_serde, columns)


class Source:
    """A topic that a query reads, with the column of its time."""

    def __init__(self, given: Relation, column: Mapping[str, Any] | None) -> None:
        self.relation = given
        self._column = column

    @property
    def key_serde(self) -> Serde[Any]:
        if self.relation.window is None:
            return KEYS
        size = self.relation.window_ms
        return session_windowed(KEYS) if size is None else windowed(KEYS, size)

    def time(self, key: Any, row: Mapping[str, Any] | None, timestamp: int) -> int:
        """Return the time of a record (ms): that in its column, or its own."""
        if self._column is None or row is None:
            return timestamp
        return column_time(self._column, {**row, **named(self.relation.key.names, key)})


def column_time(column: Mapping[str, Any], row: Mapping[str, Any]) -> int:
    """Return the time that a row has in a column (ms), and -1 if there is none: such records are skipped."""
    value = row.get(column["column"])
    try:
        if isinstance(value, str):
            return times.to_ms(times.parse(value, column["format"])) if column.get("format") else times.to_ms(times.read_timestamp(value))
        return value if isinstance(value, int) else -1 if value is None else times.to_ms(value)
    except (ValueError, TypeError):
        return -1


class _Timestamps(Processor[Any, Any, Any, Any]):
    """Give each record the time in its column; drop those without."""

    def __init__(self, column: Mapping[str, Any]) -> None:
        self._column = column

    def process(self, record: Record[Any, Any]) -> None:
        time = record.timestamp if record.value is None else column_time(self._column, record.value)
        if time >= 0:
            self.context.forward(record.with_timestamp(time))
