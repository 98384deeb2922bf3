"""The play of a case: its records go through the topologies, and what these write is compared."""

from __future__ import annotations

import base64
from collections import Counter, defaultdict
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from ks_actors.config import StreamsConfig
from ks_actors.dsl import Window, Windowed
from ks_actors.testing import TopologyTestDriver
from tests.judges.ksql.codec import KEYS, ROWS
from tests.judges.ksql.columns import Relation, relation
from tests.judges.ksql.plan import Plan
from tests.judges.ksql.reasons import LeftOut, Unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.judges.ksql.cases import Case
    from tests.judges.ksql.plan import Source

    Headers = tuple[tuple[str, bytes | None], ...]


class Written(NamedTuple):
    """A record as a case tells it; `timestamp` and `window` are None where the case is silent."""

    key: tuple[Any, ...] | None
    value: tuple[Any, ...] | None
    timestamp: int | None
    window: tuple[int, int] | None


class Play:
    """The queries of one case, each in a driver of its own, and what they wrote."""

    def __init__(self, case: Case) -> None:
        self.relations: dict[str, Relation] = {}
        self.plans: list[Plan] = []
        for each in case.plan["plan"]:
            self._define(each.get("ddlCommand"))
            if each.get("queryPlan"):
                self.plans.append(Plan(each["queryPlan"]))
        if not self.plans:
            raise LeftOut("no query")
        self.written: defaultdict[str, list[Written]] = defaultdict(list)
        self._drivers: list[TopologyTestDriver] = []
        self._offsets: Counter[str] = Counter()

    def _define(self, command: Mapping[str, Any] | None) -> None:
        if command is None or command["@type"].startswith(("registerType", "dropSource", "alterSource")):
            return
        if not command["@type"].startswith(("createStream", "createTable")):
            raise LeftOut(f"command {command['@type']}")
        topic = command["topicName"]
        self.relations[topic] = relation(topic, command["schema"], command["formats"], command.get("windowInfo"))

    def run(self, case: Case) -> None:
        # What is expected is what Kafka Streams gave.
        config = StreamsConfig(
            application_id="ksql", topology_optimization="all", default_key_serde=KEYS, default_value_serde=ROWS, kafka_streams_faults=True
        )
        with ExitStack() as stack:
            self._drivers = [stack.enter_context(TopologyTestDriver(plan.topology(config), config)) for plan in self.plans]
            for record in case.spec["testCase"]["inputs"]:
                self._input(record)

    def _input(self, record: Mapping[str, Any]) -> None:
        topic = record["topic"]
        known = self.relations.get(topic)
        if known is None:
            return
        try:
            key: Any = known.key.read(record.get("key"))
            value = known.value.read(record.get("value"))
        except Unreadable:
            return
        window = record.get("window")
        if window is not None and key is not None:
            key = Windowed(key, Window(window["start"], window["end"]))
        row = None if value is None else dict(zip(known.value.names, value, strict=True))
        self._pipe(topic, key, row, record.get("timestamp") or 0, read_headers(record))

    def _pipe(self, topic: str, key: Any, row: Mapping[str, Any] | None, timestamp: int, headers: Headers) -> None:
        """Give one record to each query that reads its topic, and on to those that read theirs."""
        offset = self._offsets[topic]
        self._offsets[topic] += 1
        for plan, driver in zip(self.plans, self._drivers, strict=True):
            source = plan.inputs.get(topic)
            if source is None:
                continue
            seen = None if row is None else {**row, **pseudo_columns(source, row, source.time(key, row, timestamp), offset, headers)}
            driver.create_input_topic(topic, source.key_serde, ROWS).pipe_input(key, seen, timestamp, headers)
            for record in driver.create_output_topic(plan.output, plan.key_serde, ROWS).read_records_to_list():
                self._output(plan.output, record.key, record.value, record.timestamp, record.headers)

    def _output(self, topic: str, key: Any, row: Mapping[str, Any] | None, timestamp: int, headers: Headers) -> None:
        known = self.relations[topic]
        window = None if not isinstance(key, Windowed) else (key.window.start, key.window.end)
        columns = known.key.written_key(key.key if isinstance(key, Windowed) else key) if known.key.columns else None
        value = known.value.written(row)
        self.written[topic].append(Written(columns, value, timestamp, window))
        again: Any = columns if window is None or columns is None else Windowed(columns, Window(*window))
        self._pipe(topic, again, None if value is None else dict(zip(known.value.names, value, strict=True)), timestamp, headers)

    def expected(self, case: Case) -> dict[str, list[Written]]:
        found: defaultdict[str, list[Written]] = defaultdict(list)
        for record in case.spec["testCase"]["outputs"]:
            known = self.relations[record["topic"]]
            window = record.get("window")
            found[record["topic"]].append(
                Written(
                    known.key.read(record.get("key")),
                    known.value.read(record.get("value")),
                    record.get("timestamp"),
                    None if window is None else (window["start"], window["end"]),
                )
            )
        return found


def read_headers(record: Mapping[str, Any]) -> Headers:
    return tuple((each["KEY"], None if each["VALUE"] is None else base64.b64decode(each["VALUE"])) for each in record.get("headers") or ())


def pseudo_columns(source: Source, row: Mapping[str, Any], timestamp: int, offset: int, headers: Headers) -> dict[str, Any]:
    """Return what ksql adds to each row that it reads, where the row has no such column of its own."""
    made: dict[str, Any] = {"ROWTIME": timestamp, "ROWPARTITION": 0, "ROWOFFSET": offset}
    for column in source.relation.headers:
        if column.header is None:
            made[column.name] = [{"KEY": name, "VALUE": content} for name, content in headers]
        else:
            made[column.name] = next((content for name, content in reversed(headers) if name == column.header), None)
    return {name: value for name, value in made.items() if name not in row}
