"""Hints at the right names, for names of Java's Kafka Streams and of other Python libraries.

`Hinted` is the metaclass of public classes, and `unknown_name` the `__getattr__` of public modules.
Both are only called for missing attributes. Type checkers see neither and report unknown names.
"""

from __future__ import annotations

import re
import sys
from dataclasses import fields, is_dataclass
from opcode import opmap
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_OF_STREAM: Final = "a table has no records: take its changes, table.to_stream().{}(…)"
_WINDOWS: Final = "group first: stream.group_by_key().windowed_by({}).count()"
_TUMBLING: Final = "TimeWindows.of_size_with_no_grace(timedelta(minutes=1))"
_TIMER: Final = "context.schedule(interval, PunctuationType.WALL_CLOCK_TIME, callback)"
_RUN: Final = "app.main() runs the app until a signal; `async with app:` runs it in a program"
_FINAL: Final = "choose before the aggregation: windowed.emit_strategy(EmitStrategy.{})"
_ADD: Final = "add with a reducer: grouped.reduce(lambda total, value: total + value)"
_SEND: Final = "await app.send(topic, key, value), or a ks_actors.Publisher without an app"
_CLEAN: Final = "await app.reset(execute=True), before the start, or `ks-actors reset`"

STREAM: Final = {
    "aggregate": "group first: stream.group_by_key().aggregate(…)",
    "apply": "stream.map_values(function), or map for keys and values",
    "as_of": "stream.join_asof(other, joiner, tolerance)",
    "branch": "stream.split().branch(predicate, name)",
    "concat": "stream.merge(other)",
    "count": "group first: stream.group_by_key().count(store)",
    "echo": "stream.to(topic), as often as there are topics",
    "events": "records come to functions: stream.map_values(function), or process(Processor)",
    "expand": "stream.flat_map_values(function)",
    "filter_map": "stream.flat_map_values(function), which returns no result or [result]",
    "flat_transform": "stream.process(supplier, *stores)",
    "flat_transform_values": "stream.process_values(supplier, *stores)",
    "hopping_window": _WINDOWS.format(_TUMBLING + ".advance_by(timedelta(seconds=10))"),
    "items": "records come to functions: stream.map(function) has key and value",
    "join_interval": "stream.join(other, joiner, JoinWindows(before, after, grace))",
    "join_latest": "stream.join(table, joiner), or join_asof(other, joiner, tolerance)",
    "join_lookup": "stream.map_values with an `async def`",
    "key_on": "stream.select_key(function)",
    "outer_join_asof": "stream.left_join_asof(other, joiner, tolerance)",
    "redistribute": "stream.repartition()",
    "reduce": "group first: stream.group_by_key().reduce(reducer)",
    "session_window": _WINDOWS.format("SessionWindows.of_inactivity_gap_with_no_grace(gap)"),
    "set_timestamp": "a Processor that forwards record.with_timestamp(time)",
    "sink": "stream.to(topic), or stream.foreach(function)",
    "sliding_window": _WINDOWS.format("SlidingWindows.of_time_difference_with_no_grace(time)"),
    "stateful_map": "stream.process_values(supplier, store)",
    "subscribe": "stream.map_values(function), or foreach(function)",
    "take": "stream.batch(function, max_records=…, max_wait_ms=…)",
    "through": "stream.repartition(), or stream.to(topic) and builder.stream(topic)",
    "to_topic": "stream.to(topic)",
    "transform": "stream.process(supplier, *stores)",
    "transform_values": "stream.process_values(supplier, *stores)",
    "tumbling_window": _WINDOWS.format(_TUMBLING),
    "update": "stream.peek(function), which changes nothing, or map_values(function)",
    "windowed_by": "group first: stream.group_by_key().windowed_by(windows)",
}
TABLE: Final = {
    "current": _FINAL.format("ON_WINDOW_UPDATE") + ", which is the default",
    "final": _FINAL.format("ON_WINDOW_CLOSE"),
    "get": "await app.store(name).get(key)",
    "items": "async for key, value in app.store(name).all()",
    "to": "a table is written by its changes: table.to_stream().to(topic)",
    **{
        name: _OF_STREAM.format(name)
        for name in (
            *("branch", "flat_map", "flat_map_values", "foreach", "group_by_key", "map", "merge"),
            *("peek", "print", "process", "process_values", "repartition", "select_key", "split"),
        )
    },
}
_GROUPED: Final = {
    "max": "grouped.reduce(max)",
    "mean": "grouped.aggregate with a sum and a count, then map_values",
    "min": "grouped.reduce(min)",
    "sum": _ADD,
    "tumbling_window": f"grouped.windowed_by({_TUMBLING})",
    "hopping_window": f"grouped.windowed_by({_TUMBLING}.advance_by(…))",
    "collect": "grouped.aggregate(list, lambda key, value, found: [*found, value])",
}
_WINDOWED: Final = {
    **_GROUPED,
    "current": _FINAL.format("ON_WINDOW_UPDATE") + ", which is the default",
    "final": _FINAL.format("ON_WINDOW_CLOSE"),
    "suppress": _FINAL.format("ON_WINDOW_CLOSE"),
}
_OF: Final = "{0}.of_{1}_with_no_grace({1}), or of_{1}_and_grace({1}, grace)"
_GRACE: Final = "{0}.of_{1}_and_grace({1}, grace)"


def _windows(kind: str, measure: str) -> dict[str, str]:
    return {
        **dict.fromkeys(("of", "of_size", "with_", "with_gap"), _OF.format(kind, measure)),
        "grace": _GRACE.format(kind, measure),
        "until": "Materialized(retention_ms=…) keeps windows longer",
    }


HINTS: Final[dict[str, dict[str, str]]] = {
    "App": {
        "Table": "grouped.count(store) makes a table, and app.store(name) reads it",
        "agent": "describe it by a StreamsBuilder: builder.stream(topic).map_values(function)",
        "add_state_store": "builder.add_state_store(ks_actors.stores.key_value(name, key, value))",
        "after_startup": "App(services=[…]) enters what it gives before the start",
        "all_metadata": "await app.members()",
        "clean_up": _CLEAN,
        "clear_state": _CLEAN,
        "command": "`ks-actors run module:name` runs an app",
        "cron": _TIMER,
        "crontab": _TIMER,
        "dataframe": "describe it by a StreamsBuilder: builder.stream(Topic(name, key, value))",
        "get_producer": _SEND,
        "get_store": "app.store(name)",
        "main_loop": _RUN,
        "on_startup": "App(services=[…]) enters what it gives before the start",
        "page": "ks_actors.web has the pages of an app",
        "publisher": _SEND,
        "query_metadata_for_key": "await app.members()",
        "run_forever": _RUN,
        "set_global_state_restore_listener": "App(restore_listener=listener)",
        "set_standby_update_listener": "App(standby_listener=listener)",
        "set_state_listener": "App(on_state=function)",
        "set_uncaught_exception_handler": "App(uncaught_handler=function)",
        "state_store": "app.store(name)",
        "stream": "describe it by a StreamsBuilder: builder.stream(Topic(name, key, value))",
        "subscriber": "describe it by a StreamsBuilder: builder.stream(topic).map_values(function)",
        "table": "describe it by a StreamsBuilder: builder.table(topic), or grouped.count(store)",
        "task": "an asyncio.TaskGroup beside `async with app:`",
        "timer": _TIMER,
        "topic": "ks_actors.Topic(name, key, value)",
        "worker_main": _RUN,
    },
    "AppHarness": {
        "pipe_input": "await harness.produce(topic, key, value)",
        "read_record": "await harness.read(topic)",
    },
    "BufferConfig": {
        "emit_early_when_full": 'BufferConfig(when_full="emit_early")',
        "shut_down_when_full": 'BufferConfig(when_full="shut_down")',
        "with_max_bytes": "BufferConfig(max_bytes=…)",
        "with_max_records": "BufferConfig(max_records=…)",
        "with_no_bound": "BufferConfig.unbounded()",
    },
    "GlobalTable": {"to": "each instance has all of it: read and write its topic", **TABLE},
    "GroupedStream": _GROUPED,
    "GroupedTable": _GROUPED,
    "JoinWindows": _windows("JoinWindows", "time_difference"),
    "SessionWindowedStream": _WINDOWED,
    "SessionWindows": _windows("SessionWindows", "inactivity_gap"),
    "SlidingWindows": _windows("SlidingWindows", "time_difference"),
    "Stream": STREAM,
    "StreamsBuilder": {
        "dataframe": "builder.stream(Topic(name, key, value))",
        "input": "builder.stream(Topic(name, key, value))",
        "read": "builder.stream(Topic(name, key, value))",
        "source": "builder.stream(Topic(name, key, value))",
        "to": "stream.to(topic)",
        "topic": "builder.stream(Topic(name, key, value))",
    },
    "StreamsConfig": {
        "get": "settings are attributes: config.commit_interval_ms",
        "put": "config.replace(commit_interval_ms=…) returns another config",
        "set": "config.replace(commit_interval_ms=…) returns another config",
    },
    "Table": TABLE,
    "TimeWindowedStream": _WINDOWED,
    "TimeWindows": _windows("TimeWindows", "size"),
    "TopologyTestDriver": {
        "input_topic": "driver.create_input_topic(name, key, value)",
        "output_topic": "driver.create_output_topic(name, key, value)",
        "pipe_input": "driver.create_input_topic(name, key, value).pipe_input(key, value)",
        "read_output": "driver.create_output_topic(name, key, value).read_record()",
        "start": "with TopologyTestDriver(topology) as driver:",
    },
}
"""Hints by the name of a class and of the missing attribute, which is in snake case."""

_STREAM: Final = "Stream; StreamsBuilder().stream(topic) makes one"
_HANDLERS: Final = "ks_actors.{} and {}"
_NAMES: Final[dict[str, str]] = {
    "Agent": _STREAM,
    "AgentT": _STREAM,
    "AppHarness": "from ks_actors.testing import AppHarness",
    "Application": "App",
    "Branched": "stream.split().branch(predicate, name)",
    "CogroupedKStream": "CogroupedStream",
    "Dataflow": "StreamsBuilder",
    "DataFrame": _STREAM,
    "Duration": "datetime.timedelta",
    "FastStream": "App",
    "GlobalKTable": "GlobalTable; StreamsBuilder().global_table(topic) makes one",
    "KGroupedStream": "GroupedStream; stream.group_by_key() makes one",
    "KGroupedTable": "GroupedTable; table.group_by(function) makes one",
    "KStream": _STREAM,
    "KTable": "Table; StreamsBuilder().table(topic) makes one",
    "KafkaBroker": "App(builder, application_id, servers)",
    "KafkaStreams": "App",
    "KeyValue": "a tuple, (key, value)",
    "Named": "the argument name=… of operations",
    "ProcessorSupplier": "the class of a Processor, or a function that makes one",
    "QueryableStoreTypes": "app.store(name)",
    "Serdes": "from ks_actors.serdes import STRING, LONG, json",
    "State": "context.get_state_store(name) in a Processor",
    "StoreBuilder": "from ks_actors import stores",
    "StoreQueryParameters": "app.store(name)",
    "Stores": "from ks_actors import stores",
    "StreamingDataFrame": _STREAM,
    "TopologyTestDriver": "from ks_actors.testing import TopologyTestDriver",
    "Transformer": "Processor",
    "ValueTransformerWithKey": "ValueTransformer",
    "agent": _STREAM,
    "faust": "App and StreamsBuilder",
    "op": _STREAM,
    "operators": _STREAM,
    "run": "App(builder, application_id, servers).main()",
}
_SERDES: Final[dict[str, str]] = {
    "AvroSerde": "Serde.of(to_bytes, of_bytes) with a library for Avro",
    "Boolean": "BOOLEAN",
    "ByteArray": "BYTES",
    "Bytes": "BYTES",
    "Double": "DOUBLE",
    "Float": "FLOAT",
    "INT": "INTEGER, or LONG",
    "Integer": "INTEGER",
    "JSON": "json(Type)",
    "Json": "json(Type)",
    "JsonSerde": "json(Type)",
    "ListSerde": "list_of(serde)",
    "Long": "LONG",
    "STR": "STRING",
    "Short": "SHORT",
    "String": "STRING",
    "StringSerde": "STRING",
    "Void": "VOID",
    "WindowedSerdes": "windowed(serde, size)",
    "pydantic": "json(Model)",
    "serde_from": "Serde.of(to_bytes, of_bytes)",
}
_STORES: Final[dict[str, str]] = {
    **{
        f"{kind}_{name}_store{end}": f"stores.{name}(name, key, value)"
        for kind in ("persistent", "in_memory", "persistent_timestamped")
        for name in ("key_value", "window", "session")
        for end in ("", "_with_headers")
    },
    "persistent_versioned_key_value_store": "stores.versioned_key_value(name, key, value)",
    **{
        f"{name}_store_builder": f"stores.{name}(name, key, value)"
        for name in ("key_value", "window", "session")
    },
}
MODULES: Final = {
    "ks_actors": _NAMES,
    "ks_actors.serdes": _SERDES,
    "ks_actors.topology._store_specs": _STORES,
}
"""Hints at the names of modules, by the module and the missing name."""

SETTINGS: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("bootstrap", "bootstrap_server", "broker", "broker_address", "broker_url", "brokers"),
        "bootstrap_servers",
    ),
    **dict.fromkeys(("hosts", "kafka_servers", "server", "servers"), "bootstrap_servers"),
    **dict.fromkeys(("app_id", "app_name", "consumer_group", "group", "id"), "application_id"),
    **dict.fromkeys(("datadir", "state_path", "state_store_dir", "tabledir"), "state_dir"),
    "auto_create_topics": "App(topics={'orders': 4}) instead",
    "auto_offset": "auto_offset_reset",
    "commit_every": "commit_interval_ms",
    "concurrency": "num_stream_threads, or max_in_flight of an operation",
    "exactly_once": "processing_guarantee='exactly_once_v2'",
    "key_serializer": "default_key_serde",
    "loglevel": "the logging module instead: see docs/logging.md",
    "on_processing_error": "processing_exception_handler",
    "on_consumer_error": "deserialization_exception_handler",
    "on_producer_error": "production_exception_handler",
    "value_serializer": "default_value_serde",
    "workers": "num_stream_threads",
}
"""Hints at settings, by names that other libraries have for them."""

_WITH: Final = re.compile(r"(?:with|as)(?:_|$)")


def snake(name: str) -> str:
    """Return a name of Java in Python's form: `mapValues` as `map_values`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().rstrip("_")


def hint(kind: type[Any], name: str) -> str | None:
    """Return the right way for a missing attribute of a class, None if it is unknown."""
    there = snake(name)
    options = [field.name for field in fields(kind) if field.init] if is_dataclass(kind) else []
    if there != name and there in options:
        return f"its name here is {there}, an argument of {kind.__name__}"
    if there != name and any(there in vars(base) for base in kind.__mro__):
        return f"its name here is {there}"
    for each in (name, there, f"{there}_"):
        for base in kind.__mro__:
            if (found := HINTS.get(base.__name__, {}).get(each)) is not None:
                return found
    if options and _WITH.match(f"{there}_"):
        return f"options are arguments: {kind.__name__}({', '.join(options)})"
    return None


def _missing(kind: type[Any], name: str, shown: str, owner: object) -> AttributeError:
    """Return the error about a missing attribute, with a hint if there is one."""
    found = None if name.startswith("__") else hint(kind, name)
    text = f"{shown} has no attribute {name!r}"
    return AttributeError(text if found is None else f"{text}: {found}", name=name, obj=owner)


def _of_object(self: Any, name: str) -> Any:
    raise _missing(type(self), name, f"{type(self).__name__!r} object", self)


class Hinted(type):
    """The metaclass of classes with hints, for themselves and for their objects."""

    if not TYPE_CHECKING:

        def __init__(cls, name: str, *arguments: Any, **options: Any) -> None:
            super().__init__(name, *arguments, **options)
            cls.__getattr__ = _of_object

        def __getattr__(cls, name: str) -> Any:
            raise _missing(cls, name, f"type object {cls.__name__!r}", cls)


def refuse(text: str) -> Callable[..., Any]:
    """Return a special method that raises TypeError, such as `__getitem__` of a stream."""

    def refused(self: object, *_: object) -> Any:
        raise TypeError(f"{type(self).__name__} {text}")

    return refused


class Elsewhere:
    """A name that a class lacks: access raises an AttributeError with the right name.

    Use it in classes whose attributes are read for each record: a `__getattr__` of the class would
    slow the access to all attributes.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, owner: object, kind: type[Any]) -> Any:
        raise AttributeError(
            f"{kind.__name__!r} object has no attribute {self._name!r}: {self._text}",
            name=self._name,
            obj=owner,
        )


def unknown_name(module: str, name: str) -> Any:
    """Raise the error about a name that a module lacks; the `__getattr__` of the module calls it.

    For `from module import name` it raises ImportError: the text of any other error would be lost.
    """
    names = MODULES[module]
    found = names.get(name) or names.get(snake(name))
    module = module.replace("topology._store_specs", "stores")
    text = f"module {module!r} has no attribute {name!r}"
    if found is None:
        raise AttributeError(text)
    frame = sys._getframe(2)
    if frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]:
        raise ImportError(
            f"cannot import name {name!r} from {module!r}: write {found}", name=module
        )
    raise AttributeError(f"{text}: write {found}", name=name)
