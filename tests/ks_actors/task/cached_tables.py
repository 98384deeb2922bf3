"""Tables of all kinds, and their results when input comes in batches and caches are flushed in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ks_actors import serdes
from ks_actors.dsl import (
    Consumed,
    Grouped,
    GroupedStream,
    Materialized,
    Produced,
    SessionWindowedStream,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Table,
    TimeWindows,
    UnlimitedWindows,
)
from ks_actors.records._batch import Batch, Headers
from ks_actors.records._topic_partition import TopicPartition
from ks_actors.testing import TopologyTestDriver
from ks_actors.topology import Topology
from tests.ks_actors.dsl.windows.uneven import Uneven

JSON = serdes.json()
WORDS = Consumed(serdes.STRING, serdes.STRING)
Made = tuple["Table[Any, Any]", Any]
"""A table and the serde of its keys."""


def joined(_: str, value: str, aggregate: str) -> str | None:
    """Append, delete at z."""
    return None if value == "z" else f"{aggregate}{value}"[-6:]


def longer(aggregate: str, value: str) -> str | None:
    return joined("", value, aggregate)


def grown(_: str, value: str, aggregate: list[str]) -> list[str] | None:
    """Change the aggregate in place."""
    if value == "z":
        return None
    aggregate.append(value)
    del aggregate[:-4]
    return aggregate


def _grouped(builder: StreamsBuilder) -> GroupedStream[str, str]:
    return builder.stream("in", WORDS).group_by_key()


def _texts(**more: Any) -> Materialized[Any, Any]:
    return Materialized(key=serdes.STRING, value=serdes.STRING, **more)


def _lists(**more: Any) -> Materialized[Any, Any]:
    return Materialized(key=serdes.STRING, value=JSON, **more)


def _windowed(table: Table[Any, Any], size: int = 10) -> Made:
    return table, serdes.windowed(serdes.STRING, size)


def _of_json_keys(builder: StreamsBuilder) -> GroupedStream[Any, str]:
    # 1 and True are equal, and not written alike.
    return builder.stream("in", WORDS).select_key(_renamed).group_by_key(Grouped(JSON, serdes.STRING, name="json"))


def _renamed(key: Any, _: str) -> Any:
    return {"a": 1, "b": True}.get(key, key)


def _cogrouped(builder: StreamsBuilder) -> Made:
    other = builder.stream("other", WORDS).group_by_key()
    return _grouped(builder).cogroup(joined).cogroup(other, joined).aggregate(str, _texts()), serdes.STRING


def _joined_tables(builder: StreamsBuilder) -> Made:
    left, right = (builder.table(topic, WORDS, _texts(name=f"{topic}-table")) for topic in ("in", "other"))
    return left.outer_join(right, lambda one, two: f"{one}+{two}", _texts(name="joined")), serdes.STRING


def _sessions(grouped: GroupedStream[Any, str]) -> SessionWindowedStream[Any, str]:
    return grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(4, 25))


def _regrouped(builder: StreamsBuilder) -> Any:
    return builder.table("in", WORDS).group_by(lambda key, value: (value, key), Grouped(serdes.STRING, serdes.STRING))


TABLES: dict[str, Callable[[StreamsBuilder], Made]] = {
    "count": lambda builder: (_grouped(builder).count(), serdes.STRING),
    "count, keys of JSON": lambda builder: (_of_json_keys(builder).count(), JSON),
    "count of what was counted": lambda builder: (
        _grouped(builder).count().to_stream().map_values(str).group_by_key(Grouped(serdes.STRING, serdes.STRING)).count(),
        serdes.STRING,
    ),
    "reduce": lambda builder: (_grouped(builder).reduce(longer), serdes.STRING),
    "reduce, keys of JSON": lambda builder: (_of_json_keys(builder).reduce(longer), JSON),
    "aggregate": lambda builder: (_grouped(builder).aggregate(str, joined, _texts()), serdes.STRING),
    "aggregate, in place": lambda builder: (_grouped(builder).aggregate(list, grown, _lists()), serdes.STRING),
    "table": lambda builder: (builder.table("in", WORDS, _texts(name="rows")), serdes.STRING),
    "to_table": lambda builder: (builder.stream("in", WORDS).to_table(_texts(name="rows")), serdes.STRING),
    "filter": lambda builder: (builder.table("in", WORDS).filter(lambda _, value: value != "x", _texts(name="rows")), serdes.STRING),
    "map_values": lambda builder: (
        _grouped(builder).count().map_values(lambda count: None if count % 3 == 0 else str(count), _texts(name="rows")),
        serdes.STRING,
    ),
    "tumbling count": lambda builder: _windowed(_grouped(builder).windowed_by(TimeWindows.of_size_and_grace(10, 25)).count()),
    "tumbling count, keys of JSON": lambda builder: (
        _of_json_keys(builder).windowed_by(TimeWindows.of_size_and_grace(10, 25)).count(),
        serdes.windowed(JSON, 10),
    ),
    "tumbling aggregate": lambda builder: _windowed(
        _grouped(builder).windowed_by(TimeWindows.of_size_and_grace(10, 5)).aggregate(list, grown, _lists())
    ),
    "hopping count": lambda builder: _windowed(_grouped(builder).windowed_by(TimeWindows.of_size_and_grace(10, 15).advance_by(4)).count()),
    "hopping reduce": lambda builder: _windowed(
        _grouped(builder).windowed_by(TimeWindows.of_size_and_grace(10, 15).advance_by(4)).reduce(lambda one, two: f"{one}{two or '-'}"[-6:])
    ),
    "sliding aggregate": lambda builder: _windowed(
        _grouped(builder).windowed_by(SlidingWindows.of_time_difference_and_grace(10, 20)).aggregate(list, grown, _lists())
    ),
    "custom aggregate": lambda builder: (
        _grouped(builder).windowed_by(Uneven(12, 15)).aggregate(list, grown, _lists()),
        serdes.windowed(serdes.STRING, Uneven(12, 15)),
    ),
    "unlimited count": lambda builder: _windowed(_grouped(builder).windowed_by(UnlimitedWindows.of().start_on(5)).count(), 1),
    "session count": lambda builder: (_sessions(_grouped(builder)).count(Materialized(retention_ms=1000)), serdes.session_windowed(serdes.STRING)),
    "session count, keys of JSON": lambda builder: (
        _sessions(_of_json_keys(builder)).count(Materialized(retention_ms=1000)),
        serdes.session_windowed(JSON),
    ),
    "session aggregate, in place": lambda builder: (
        _sessions(_grouped(builder)).aggregate(list, grown, lambda _, one, other: one + other, _lists(retention_ms=1000)),
        serdes.session_windowed(serdes.STRING),
    ),
    "cogroup": _cogrouped,
    "join": _joined_tables,
    "count of a table": lambda builder: (_regrouped(builder).count(), serdes.STRING),
    "reduce of a table": lambda builder: (
        _regrouped(builder).reduce(lambda one, two: "".join(sorted(one + two)), lambda one, two: one.replace(two, "", 1) or None),
        serdes.STRING,
    ),
    "aggregate of a table, in place": lambda builder: (_regrouped(builder).aggregate(list, added, removed, _lists()), serdes.STRING),
}
"""Tables whose updates may be held back."""


def added(_: str, value: str, aggregate: list[str]) -> list[str]:
    aggregate.append(value)
    aggregate.sort()
    return aggregate


def removed(_: str, value: str, aggregate: list[str]) -> list[str]:
    aggregate.remove(value)
    return aggregate


def topology(kind: str, *, mirror: bool) -> Topology:
    """Write the table's updates to `out`; the `mirror` fails when the old value of an update is not the one sent before.

    Without a cache it may be what an aggregate begins with.
    """
    builder = StreamsBuilder()
    table, key = TABLES[kind](builder)
    table.to_stream().to("out", Produced(key, JSON))
    if mirror:
        rows = table.group_by(lambda key, value: ("all", [str(key), value]), Grouped(serdes.STRING, JSON))
        rows.aggregate(dict, _put, _take, Materialized("mirror", serdes.STRING, JSON, caching=False))
    return builder.build()


def _put(_: str, row: Any, rows: dict[str, Any]) -> dict[str, Any]:
    key, value = row
    assert key not in rows, f"{key} goes from {rows[key]} to {value}, and nothing was said of the old value"
    return {**rows, key: value}


def _take(_: str, row: Any, rows: dict[str, Any]) -> dict[str, Any]:
    key, value = row
    assert rows.get(key) == value, f"{key} was {rows.get(key)}, and is said to have been {value}"
    return {each: old for each, old in rows.items() if each != key}


class Row(NamedTuple):
    """A record that was written."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class Piped:
    """One task, driven in batches."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        assert driver._task is not None
        self.driver = driver
        self.task = driver._task
        self.out: list[Row] = []
        self._ends: dict[TopicPartition, int] = {}

    @property
    def budget(self) -> Any:
        return self.driver._parts.cache

    def feed(self, topic: str, rows: Sequence[tuple[str | None, str | None, int]], headers: list[Headers] | None = None) -> None:
        """Process records, with all their consequences."""
        keys, values = ([None if row[at] is None else row[at].encode() for row in rows] for at in (0, 1))  # type: ignore[union-attr]  # text, or None
        self._add(TopicPartition(topic, 0), Batch(keys, values, [row[2] for row in rows], headers))
        self.work()

    def work(self) -> None:
        """Process all present records."""
        while True:
            self._route()
            if not self.task.process(60.0):
                return

    def flush(self, at: int | None = None, limit: int = 1) -> None:
        """Flush all, or some of one cache."""
        if at is None:
            while not self.task.drained:
                self.task.drain(60.0)
                self.work()
        elif self.caches:
            self.caches[at % len(self.caches)].flush(limit)
            self.work()

    @property
    def caches(self) -> tuple[Any, ...]:
        plan = self.task._plan
        assert plan is not None
        return plan.caches

    def table(self) -> dict[bytes | None, tuple[bytes, int]]:
        """Return the final values of the records of `out`."""
        return table(self.out)

    def _route(self) -> None:
        for written in self.task.take_output():
            batch = written.batch
            if written.partition in self.task.group.queues:
                self._add(written.partition, batch)
            elif written.partition.topic == "out":
                headers: Iterable[Headers] = batch.headers or [()] * len(batch)
                self.out.extend(map(Row, batch.keys, batch.values, batch.timestamps, headers))

    def _add(self, partition: TopicPartition, batch: Batch) -> None:
        first = self._ends.get(partition, 0)
        end = self._ends[partition] = first + len(batch)
        self.task.add(partition, Batch(batch.keys, batch.values, batch.timestamps, batch.headers, range(first, end)), end, end)


def table(rows: Iterable[Row]) -> dict[bytes | None, tuple[bytes, int]]:
    """Return the final values of updates."""
    found: dict[bytes | None, tuple[bytes, int]] = {}
    for row in rows:
        if row.value is None:
            found.pop(row.key, None)
        else:
            found[row.key] = (row.value, row.timestamp)
    return found


def driver(kind: str, limit: int, **config: Any) -> TopologyTestDriver:
    return TopologyTestDriver(topology(kind, mirror=limit > 0), {"statestore_cache_max_bytes": limit, "default_dsl_store": "in_memory", **config})
