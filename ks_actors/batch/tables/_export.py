"""Tables and topics as Parquet files."""

from __future__ import annotations

import asyncio
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import pyarrow as pa

from ks_actors._errors import ConfigError, UnknownStore
from ks_actors.batch._export_progress import Watch
from ks_actors.batch._loop_calls import LoopCalls
from ks_actors.batch._reading import Bounds, LogReader, SharedLog, address_of
from ks_actors.batch.tables._arrow_types import Decoding, decoding_of
from ks_actors.batch.tables._columns import HEADERS, TopicColumns, latest
from ks_actors.batch.tables._parquet import write_file
from ks_actors.lifecycle import run_in_thread
from ks_actors.task import TaskParts
from ks_actors.topology import SinkNode, SourceNode, StoreKind, bare_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ks_actors.batch._export_progress import ExportProgress
    from ks_actors.batch._reading import LogRange
    from ks_actors.config import StreamsConfig
    from ks_actors.log import Log
    from ks_actors.records import CustomWindows
    from ks_actors.serdes import Serde
    from ks_actors.topology import StoreSpec, Topology

_TIME = pa.timestamp("us", "UTC")
_RAW = Decoding(pa.binary(), None)
_NO_CHANGELOG = (
    "table {}: {}, so it cannot be exported. Write it to a topic, or read a snapshot by spark.read"
)


class _Plan(NamedTuple):
    """One table or topic: its topic in the log, its decodings, and its kind of windows."""

    name: str
    topic: str
    table: bool
    key: Decoding
    value: Decoding
    kind: str = ""
    windows: int | CustomWindows = 0


@final
class Exporter:
    """Export an app's current tables and topics from the log."""

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        *,
        raw: bool,
        types: Mapping[str, Any],
        watch: Watch,
    ) -> None:
        self._topology = topology
        self._watch = watch
        self._raw = raw
        self._types = types
        parts = TaskParts.of(topology, config)
        self._topics, self._serdes = parts.topics, parts.serdes

    async def export(
        self,
        log: LogReader | SharedLog,
        directory: Path,
        tables: Collection[str],
        topics: Collection[str],
    ) -> dict[str, int]:
        """Export the tables and topics; return the number of rows by name.

        A cancellation ends the read, and waits until the thread has removed its files.
        """
        plans = [self._table(name) for name in tables] + [self._topic(name) for name in topics]
        names = [plan.name for plan in plans]
        if len(set(names)) < len(names):
            raise ConfigError(
                f"{', '.join(sorted({name for name in names if names.count(name) > 1}))}: is named "
                "twice, and both would be written to one directory"
            )
        if strange := sorted(set(self._types) - set(names)):
            raise ConfigError(f"types: {', '.join(strange)} is not exported")
        if self._raw and self._types:
            raise ConfigError(
                f"types: {', '.join(sorted(self._types))} has a type, but raw leaves all as bytes: "
                "give one of both"
            )
        places = [plan.topic for plan in plans]
        ranges = await run_in_thread(partial(log.ranges, places, Bounds()), log.give_up)
        counts = {}
        for plan in plans:
            parts = [one for one in ranges if one.topic == plan.topic]
            write = partial(_write, log, directory, plan, parts, self._watch)
            counts[plan.name] = await run_in_thread(write, log.give_up)
        return counts

    def _decodings(
        self, name: str, topic: str, key: Serde[Any] | None, value: Serde[Any] | None
    ) -> tuple[Decoding, Decoding]:
        if self._raw:
            return _RAW, _RAW
        found = self._serdes.pair(key, value, of=f"exported {name}")
        return decoding_of(found[0], topic, is_key=True), decoding_of(
            found[1], topic, type_=self._types.get(name)
        )

    def _table(self, name: str) -> _Plan:
        filled = next(
            (each.topic for each in self._topology.global_topics.values() if each.store == name),
            None,
        )
        if filled is not None:
            spec = self._topology.global_stores[name]
            return _Plan(name, filled, True, *self._decodings(name, filled, spec.key, spec.value))
        found: StoreSpec | None = self._topology.stores.get(name)
        if found is None:
            known = ", ".join((*self._topology.stores, *self._topology.global_stores)) or "none"
            raise UnknownStore(f"the topology has no table {name!r}; it has {known}")
        if not found.logging or found.kind is StoreKind.CUSTOM:
            raise ConfigError(
                _NO_CHANGELOG.format(
                    name, "it is a custom store" if found.logging else "it has no changelog"
                )
            )
        topic = self._topics.changelog(name)
        kind = bare_kind(found.kind.value)
        return _Plan(
            name,
            topic,
            True,
            *self._decodings(name, topic, found.key, found.value),
            kind,
            found.window_size_ms if found.windows is None else found.windows,
        )

    def _topic(self, name: str) -> _Plan:
        topic = self._topics.topic(name)
        nodes = self._topology.nodes.values()
        # A topic's own name has precedence over patterns, as in a topology's sources.
        for matches in (_names, _matches):
            for node in nodes:
                if isinstance(node, SourceNode | SinkNode) and matches(node, name):
                    return _Plan(
                        name, topic, False, *self._decodings(name, topic, node.key, node.value)
                    )
        filled = self._topology.global_topics.get(name)
        if filled is not None:
            spec = self._topology.global_stores[filled.store]
            return _Plan(name, topic, False, *self._decodings(name, topic, spec.key, spec.value))
        if name in self._types:
            raise ConfigError(
                f"types: the topology neither reads nor writes topic {name!r}, so it has no serde "
                "for it: export it without a type, as bytes"
            )
        return _Plan(name, topic, False, _RAW, _RAW)


def _names(node: SourceNode | SinkNode, topic: str) -> bool:
    return topic in node.topics if isinstance(node, SourceNode) else node.topic == topic


def _matches(node: SourceNode | SinkNode, topic: str) -> bool:
    return (
        isinstance(node, SourceNode)
        and node.pattern is not None
        and node.pattern.fullmatch(topic) is not None
    )


def _schema(plan: _Plan) -> pa.Schema:
    ends: dict[str, list[str]] = {
        "window": ["window_start", "window_end"],
        "session": ["window_start", "window_end"],
    }
    windows = [(name, _TIME) for name in ends.get(plan.kind, [])]
    offset, headers = ([], []) if plan.table else ([("offset", pa.int64())], [("headers", HEADERS)])
    fields = [
        ("partition", pa.int32()),
        *offset,
        ("timestamp", _TIME),
        ("key", plan.key.type),
        *windows,
        ("value", plan.value.type),
        *headers,
    ]
    return pa.schema(fields)


def _write(
    log: LogReader | SharedLog,
    directory: Path,
    plan: _Plan,
    ranges: Iterable[LogRange],
    watch: Watch,
) -> int:
    """Write one file per partition, and return the total number of rows. Blocks.

    Each file appears only when it is complete.
    """
    place, count = directory / plan.name, 0
    place.mkdir(parents=True, exist_ok=True)
    schema, versioned = _schema(plan), plan.kind == StoreKind.VERSIONED.value
    columns = TopicColumns(
        schema,
        plan.key.decode,
        plan.value.decode,
        plan.kind,
        plan.windows,
        ready=True,
        advice="Export it raw, or give its type",
    )
    for one in ranges:
        # Close the generator here. Garbage collection could close it in the log's own thread, and
        # that would block.
        with closing(log.read(one)) as read:
            told = watch.over(plan.name, one, read)
            batches = (latest(told, versioned=versioned),) if plan.table else told
            rows = (columns.of(batch, one) for batch in batches if len(batch))
            count += write_file(place / f"{one.partition}.parquet", schema, rows)
    return count


async def export(
    topology: Topology,
    config: StreamsConfig,
    directory: Path | str,
    log: Log | None,
    *,
    tables: Collection[str] = (),
    topics: Collection[str] = (),
    raw: bool = False,
    types: Mapping[str, Any] | None = None,
    progress: Callable[[ExportProgress], None] | None = None,
) -> dict[str, int]:
    """Write tables and topics into Parquet files; see `App.export`."""
    if not tables and not topics:
        raise ConfigError("tables, topics: name something to export")
    loop = asyncio.get_running_loop()
    calls = LoopCalls(loop)

    async def report(seen: ExportProgress) -> None:
        if progress is not None:
            progress(seen)

    def tell(seen: ExportProgress) -> None:
        calls.run(report(seen))

    exporter = Exporter(topology, config, raw=raw, types=types or {}, watch=Watch(tell))
    if log is not None:
        return await exporter.export(SharedLog(log, loop), Path(directory), tables, topics)
    # Opened read-only, as an app may be using the log.
    reader = LogReader(address_of(config))
    try:
        await run_in_thread(reader.open, reader.give_up)
        return await exporter.export(reader, Path(directory), tables, topics)
    finally:
        await run_in_thread(reader.close)
