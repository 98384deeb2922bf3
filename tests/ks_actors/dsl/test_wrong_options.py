"""Wrong options, names and callbacks are refused where they are given, by an error that names them: nothing is accepted and fails later."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ks_actors import (
    App,
    ConfigError,
    Consumed,
    Processor,
    Retry,
    StickyTaskAssignor,
    StreamsBuilder,
    StreamsConfig,
    Topology,
    TopologyError,
    blocking,
    serdes,
    stores,
)
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.serdes import STRING, Serde

NO_INTS = ["5", 1.5, True, [5], Decimal(5), Fraction(5), float("inf"), float("nan"), np.float64(3), np.int64(5), object(), int]
NO_NAMES = [5, None, ["s"], b"s", "", ("s",), True, object(), {"s"}, 1.5]
NO_FUNCTIONS = [5, "x", [], object(), 1.5]
CONFIG = StreamsConfig(application_id="app", default_key_serde=STRING, default_value_serde=STRING)


def none() -> Any:
    return True


def one(_: Any) -> Any:
    return True


def two(_: Any, __: Any) -> Any:
    return True


def three(_: Any, __: Any, ___: Any) -> Any:
    return True


def five(_: Any, __: Any, ___: Any, ____: Any, _____: Any) -> Any:
    return True


async def later(*_: Any) -> Any:
    return True


def some(*_: Any) -> Iterator[Any]:
    yield 1


async def some_later(*_: Any) -> AsyncIterator[Any]:
    yield 1


async def call(_: Any) -> Any:
    return True


class Plain(Processor[Any, Any, Any, Any]):
    """Do nothing."""

    def process(self, record: Any) -> None: ...


class Later(Processor[Any, Any, Any, Any]):
    """Do nothing, later."""

    async def process(self, record: Any) -> None: ...


class Generates(Processor[Any, Any, Any, Any]):
    """Look like a processor; its body never runs."""

    def process(self, record: Any) -> Any:
        yield record


def stream() -> Any:
    return StreamsBuilder().stream("in", Consumed(STRING, STRING))


def source() -> Topology:
    return Topology().add_source("in", "in").add_processor("p", Plain, "in").add_state_store(stores.key_value("s", STRING, STRING))


def global_store(supplier: Any = Plain, **options: Any) -> Any:
    return source().add_global_store(stores.key_value("g", STRING, STRING), "gs", "world", "gp", supplier, **options)


def app(**options: Any) -> App:
    return App(source(), CONFIG, **options)


REFUSED: dict[str, tuple[Callable[[Any], Any], str, list[Any]]] = {
    "max_in_flight": (lambda v: stream().map_values(call, max_in_flight=v), "KSTREAM-MAPVALUES-0000000001: max_in_flight", [*NO_INTS, None, 0, -1]),
    "order": (
        lambda v: stream().map_values(call, order=v),
        "KSTREAM-MAPVALUES-0000000001: order",
        ["x", 5, None, True, b"key", [], "KEY", {}, 1.5, ""],
    ),
    "timeout_ms": (lambda v: stream().process(Later, timeout_ms=v), "KSTREAM-PROCESSOR-0000000001: timeout_ms", [*NO_INTS, 0, -1]),
    "retry": (lambda v: stream().filter(later, retry=v), "KSTREAM-FILTER-0000000001: retry", [5, "x", True, Retry, [], {}, 1.5, object(), b"", (3,)]),
    "max_records": (lambda v: stream().batch(one, max_records=v), "max_records of KSTREAM-BATCH-0000000001", [*NO_INTS, None, 0, -1]),
    "max_wait_ms": (lambda v: stream().batch(one, max_wait_ms=v), "max_wait_ms of KSTREAM-BATCH-0000000001", [*NO_INTS, None, -1]),
    "in flight of a batch": (lambda v: stream().batch(one, max_in_flight=v, name="b"), "b: max_in_flight", [*NO_INTS, None, 0, -1]),
    "attempts": (lambda v: Retry(attempts=v), "attempts of Retry", [*NO_INTS, None]),
    "backoff_ms": (lambda v: Retry(backoff_ms=v), "backoff_ms of Retry", [*NO_INTS, None]),
    "on": (lambda v: Retry(on=v), "on of Retry", [OSError, [OSError], (5,), None, "x", (BaseException,), {OSError}, (OSError(),), 5, (int,)]),
    "an unknown option": (
        lambda v: stream().map_values(call, **{v: 1}),
        "KSTREAM-MAPVALUES-0000000001 takes no argument",
        ["timeot_ms", "stores", "max_inflight", "ordr", "retries", "key", "value", "async_", "partitions", "grace_ms"],
    ),
    "an unknown option of process": (
        lambda v: stream().process(Plain, **{v: ["s"]}),
        "KSTREAM-PROCESSOR-0000000001 takes no argument",
        ["stores", "store", "state_stores", "names", "key", "value", "options", "parents", "connected", "title"],
    ),
    "stores of processor": (lambda v: stream().process(Plain, v), "a name of a store of processor", [*NO_NAMES, stores.key_value("s")]),
    "parents": (lambda v: source().add_processor("x", Plain, v), "a parent of node x", NO_NAMES),
    "parents of a sink": (lambda v: source().add_sink("x", "out", v), "a parent of node x", NO_NAMES),
    "processors of a store": (lambda v: source().add_state_store(stores.key_value("t"), v), "a processor of store t", NO_NAMES),
    "a connected store": (lambda v: source().connect_processor_and_state_stores("p", v), "a store of connect_processor_and_state_stores", NO_NAMES),
    "a connected processor": (lambda v: source().connect_processor_and_state_stores(v, "s"), "the processor of connect_processor_and", NO_NAMES),
    "options": (
        lambda v: source().add_processor("x", Later, "in", options=v),
        "options of processor x",
        [5, "x", {"max_in_flight": 1}, [], True, Retry(), Later, 1.5, b"", object()],
    ),
    "extractor of a global store": (
        lambda v: global_store(timestamp_extractor=v),
        "timestamp_extractor of global store g",
        [*NO_FUNCTIONS, one, three, later, some, some_later],
    ),
    "partitions of an internal topic": (lambda v: source().add_internal_topic("i", partitions=v), "internal topic i", [*NO_INTS, 0, -1]),
    "copartition": (lambda v: source().copartition(v), "copartition", ["in", 5, None, [5], [""], [None], b"in", 1.5, True, object()]),
    "the name of a branch": (
        lambda v: stream().split("s").branch(two, v),
        "the name of a branch of split s",
        [5, b"x", ["x"], True, 1.5, {}, "", (), 0, {1}],
    ),
    "topics of an app": (
        lambda v: app(topics=v),
        "argument 'topics' of App",
        ["x", 5, ["in"], {"in": "x"}, {"in": 0}, {"in": True}, {5: 1}, {"in": -1}, {"in": 1.5}, {"in": None}, ("in",)],
    ),
    "log": (
        lambda v: app(log=v),
        "argument 'log' of App",
        [5, [], object(), 1.5, b"memory://", EmbeddedLog, one, {}, True, ("memory://",)],
    ),
    "on_state": (lambda v: app(on_state=v), "argument 'on_state' of App", [*NO_FUNCTIONS, none, one, three, later, some, some_later]),
    "task_priority": (lambda v: app(task_priority=v), "argument 'task_priority' of App", [*NO_FUNCTIONS, none, two, later, some, some_later]),
    "assignor": (lambda v: app(assignor=v), "argument 'assignor' of App", [5, "x", one, StickyTaskAssignor, Plain(), {}, [], True, b"", object()]),
    "grouper": (lambda v: app(grouper=v), "argument 'grouper' of App", [5, "x", one, two, Plain(), {}, [], True, b"", object()]),
    "uncaught_handler": (lambda v: app(uncaught_handler=v), "argument 'uncaught_handler' of App", [*NO_FUNCTIONS, None, none, two, some, some_later]),
    "restore_listener": (lambda v: app(restore_listener=v), "argument 'restore_listener' of App", [*NO_FUNCTIONS, one, Plain, {}, True, b""]),
    "standby_listener": (lambda v: app(standby_listener=v), "argument 'standby_listener' of App", [*NO_FUNCTIONS, one, Plain, {}, True, b""]),
    "blocking": (lambda v: blocking(v), "blocking", [*NO_FUNCTIONS, None, later, some_later, Later, {}]),
    "windowed": (lambda v: serdes.windowed(v, 5), "inner of windowed", [None, "x", 5, object, [], STRING.serializer, object(), b"", 1.5, True]),
    "size of windowed": (lambda v: serdes.windowed(STRING, v), "windows of windowed", [*NO_INTS, None]),
    "session_windowed": (lambda v: serdes.session_windowed(v), "inner of session_windowed", [None, "x", 5, object, [], object(), b"", 1.5, True, {}]),
    "list_of": (lambda v: serdes.list_of(v), "inner of list_of", [None, "x", 5, object, [], STRING.serializer, object(), b"", 1.5, True]),
    "Serde.of": (lambda v: Serde.of(v, bytes), "serialize of Serde.of", [*NO_FUNCTIONS, None, later, some_later, True, {}]),
    "generators": (
        lambda v: v(some),
        "is the generator",
        [
            lambda f: stream().map_values(f),
            lambda f: stream().map(f),
            lambda f: stream().filter(f),
            lambda f: stream().select_key(f),
            lambda f: stream().peek(f),
            lambda f: stream().foreach(f),
            lambda f: stream().group_by(f),
            lambda f: stream().group_by_key().reduce(f),
            lambda f: stream().group_by_key().aggregate(str, f),
            lambda f: stream().split().branch(f),
            lambda _: stream().process(Generates),
        ],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_name(name: str) -> None:
    """Ten wrong ones of each: the error is a TopologyError, and names operation and argument."""
    make, words, wrong = REFUSED[name]
    assert len(wrong) >= 10
    for value in wrong:
        with pytest.raises(TopologyError, match=re.escape(words) if name != "copartition" else words):
            make(value)


@pytest.mark.parametrize("name", ["deserialization_exception_handler", "processing_exception_handler", "production_exception_handler"])
@pytest.mark.parametrize("value", [5, "x", none, one, two, five, later, some, some_later, []])
def test_handlers_that_cannot_answer_are_refused_by_name(name: str, value: Any) -> None:
    """A handler is called with three arguments, and not awaited: its setting is named, where it is set."""
    with pytest.raises(ConfigError, match=name):
        StreamsConfig.of({"application_id": "app", name: value})
    StreamsConfig.of({"application_id": "app", name: three})


@pytest.mark.parametrize("value", [5, "x", none, one, three, later, some, some_later, [], object()])
def test_extractors_that_cannot_tell_are_refused_by_name(value: Any) -> None:
    """The app's default extractor is called with the record and a time, and not awaited."""
    with pytest.raises(ConfigError, match="default_timestamp_extractor"):
        StreamsConfig.of({"application_id": "app", "default_timestamp_extractor": value})
    StreamsConfig.of({"application_id": "app", "default_timestamp_extractor": two})


def test_a_global_store_is_kept_by_a_plain_processor() -> None:
    """Nothing would wait for one with `async def process`."""
    with pytest.raises(TopologyError, match="processor gp of global store g is 'async def'"):
        global_store(Later)


def test_a_text_that_is_no_url_of_a_log_is_refused() -> None:
    """The error says the forms that there are."""
    with pytest.raises(ConfigError, match="'mem' is not the URL of a log: expected memory://, embedded:///path or kafka://host:port"):
        app(log="mem")


def test_generators_are_welcome_where_their_results_are_taken() -> None:
    """`flat_map`, `flat_map_values`, `batch` and partitioners give many."""
    stream().flat_map(some)
    stream().flat_map_values(some)
    stream().batch(some)
    partitioner: Any = some
    source().add_sink("out", "out", "p", partitioner=partitioner)


def test_a_good_app_passes() -> None:
    """A valid one is accepted, a coroutine function for the uncaught handler too."""
    app(log=EmbeddedLog())
    app(topics={"in": 1}, on_state=two, uncaught_handler=later, task_priority=one)
    stream().map_values(call, max_in_flight=5, order="none", timeout_ms=5, retry=Retry(attempts=1, on=(OSError,)))
