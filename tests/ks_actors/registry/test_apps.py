"""Apps with schemas in a registry over HTTP: what they ask before the start, and before records are read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from ks_actors import App, ProductionFailed, StreamsConfig, serdes
from ks_actors.dsl import Consumed, Grouped, Materialized, Produced, StreamsBuilder
from ks_actors.log import Outgoing
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.records import Batch, TopicPartition
from ks_actors.registry import InMemoryRegistry, RegistryUnavailable, SchemaIncompatible, SchemaNotFound, SchemaRegistry
from ks_actors.serdes import Serde, list_of, writer
from ks_actors.testing import AppHarness, TestRecord, run_app
from ks_actors.topology import Topology
from tests.ks_actors.registry.messages import Item
from tests.ks_actors.registry.server import Server, serving
from tests.ks_actors.runtime.helpers import in_virtual_time

PEN, INK = Item("pen", 120), Item("ink", 5)


class Priced(msgspec.Struct, frozen=True):
    """The next version of Item, under the same name."""

    name: str
    cents: int
    tax: int = 19


Priced.__name__ = Item.__name__


NEXT = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "name", "type": "string"}, {"name": "cents", "type": "long"}, {"name": "tax", "type": "long", "default": 19}],
}


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(InMemoryRegistry()) as made:
        yield made


def copied(value: Serde[Any], target: Serde[Any] | None = None) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", Consumed(serdes.STRING, value)).to("out", Produced(serdes.STRING, target or value))
    return builder.build()


def elsewhere(server: Server, make: Callable[[SchemaRegistry], Serde[Any]], *values: Any, topic: str = "in") -> list[TestRecord[Any, Any]]:
    """Return records that another program has written: with schemas that the app may not know."""
    write = writer(make(SchemaRegistry(server.registry)), topic)
    made: list[TestRecord[Any, Any]] = []
    for number, value in enumerate(values):
        headers: list[tuple[str, bytes | None]] = []
        data = write(value, headers)
        made.append(TestRecord(f"k{number}", data, number, tuple(headers)))
    return made


async def values(harness: AppHarness) -> list[Any]:
    return [record.value for record in await harness.read("out")]


def test_schemas_are_registered_before_the_first_record(server: Server) -> None:
    """Those of sinks, of stores and their changelogs, and of internal topics, in subjects by their topics; sources register none."""
    item: Serde[Any] = SchemaRegistry(server.url).avro(Item)
    lists: Serde[Any] = list_of(item)
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(serdes.STRING, item))
    stream.map(lambda _, value: (value, value)).to("out", Produced(item, item))
    stream.group_by(lambda _, value: value, Grouped(item, item, "by-item")).count(Materialized("counts", item, serdes.LONG))
    by_key = stream.group_by(lambda key, _: key, Grouped(serdes.STRING, lists, "lists"))
    by_key.reduce(lambda one, _: one, Materialized("lists", serdes.STRING, lists))

    async def test(_: AppHarness) -> None:
        assert server.registry.subjects() == sorted(
            [
                "app-by-item-repartition-key",
                "app-by-item-repartition-value",
                "app-counts-changelog-key",
                "app-lists-changelog-value",
                "app-lists-repartition-value",
                "out-key",
                "out-value",
            ]
        )

    run_app(test, builder.build(), topics={"in": 1, "out": 1})


def test_parts_of_foreign_key_joins_have_subjects_of_their_own(server: Server) -> None:
    """Named as in Kafka Streams: `-fk`, `-pk` and `-vh` behind the topic of subscriptions; results are right."""
    registry = SchemaRegistry(server.url)
    item, key = registry.avro(Item), registry.avro('"string"', str)
    builder = StreamsBuilder()
    left, right = builder.table("left", Consumed(key, item)), builder.table("right", Consumed(key, item))
    joined = left.join(right, lambda one, other: Item(one.name + other.name, other.cents), foreign_key=lambda value: value.name)
    joined.to_stream().to("out", Produced(key, item))

    async def test(harness: AppHarness) -> None:
        known = server.registry.subjects()
        assert all(any(name.endswith(f"-topic{part}") for name in known) for part in ("-fk-key", "-pk-key", "-vh-value"))
        write = writer(SchemaRegistry(server.registry).avro('"string"', str), "left", is_key=True)
        for topic, name in (("right", "pen"), ("left", "a")):
            (record,) = elsewhere(server, lambda other: other.avro(Item), PEN, topic=topic)
            await harness.produce_all(topic, [TestRecord(write(name, []), record.value, 5)])
            await harness.caught_up()
        assert await values(harness) == [Item("penpen", 120)]

    run_app(test, builder.build(), topics={"left": 1, "right": 1, "out": 1})


@pytest.mark.parametrize(
    ("answer", "options", "error", "told"),
    [
        ((503, {}), {}, RegistryUnavailable, "within 0.05 s"),
        ((409, {"message": "reader type"}), {}, SchemaIncompatible, "reader type"),
        (None, {"auto_register": False}, SchemaNotFound, "Subject 'out-value' not found"),
        (None, {"use_latest_version": True}, SchemaNotFound, "Subject 'out-value' not found"),
    ],
)
def test_a_start_without_its_schemas_fails(answer: Any, options: Any, error: type[Exception], told: str, server: Server) -> None:
    """With the registry's error, and notes that name serde and subject, before any topic is read."""
    server.answer = lambda method, _path: answer if method == "POST" else None
    registry = SchemaRegistry(server.url, deadline_ms=50)

    async def test(_: AppHarness) -> None:
        raise AssertionError

    with pytest.raises(error, match=told) as failed:
        run_app(test, copied(serdes.STRING, registry.avro(Item, **options)), topics={"in": 1, "out": 1})
    assert "<Serde avro(Item)> needs the schema of subject out-value" in failed.value.__notes__
    assert (options.get("auto_register") is False) == any("auto_register=True" in note for note in failed.value.__notes__)


@pytest.mark.parametrize("ids", ["prefix", "header"])
@pytest.mark.parametrize("make", ["avro", "json_schema"])
def test_records_of_schemas_that_come_later_are_read(make: str, ids: Any, server: Server) -> None:
    """An id that appears while the app runs is looked up before its records are decoded, each once."""
    item = getattr(SchemaRegistry(server.url), make)(Item)

    async def test(harness: AppHarness) -> None:
        await harness.produce_all("in", elsewhere(server, lambda other: getattr(other, make)(Item, ids=ids), PEN))
        later = elsewhere(server, lambda other: getattr(other, make)(Priced, ids=ids), Priced("ink", 5), Priced("cap", 7, 1))
        await harness.produce_all("in", later)
        await harness.caught_up()
        assert await values(harness) == [PEN, INK, Item("cap", 7)]

    run_app(test, copied(item), topics={"in": 1, "out": 1})
    asked = [request for request in server.registry.requests if "schemas/" in request]
    assert len(asked) == len(set(asked))


def test_schemas_within_other_serdes_are_looked_up_too(server: Server) -> None:
    """A serde of lists, or of windowed keys, has its parts' ids found before it reads."""
    item = list_of(SchemaRegistry(server.url).avro(Item))

    async def test(harness: AppHarness) -> None:
        await harness.produce_all("in", elsewhere(server, lambda other: list_of(other.avro(NEXT)), [{"name": "pen", "cents": 120}]))
        await harness.caught_up()
        assert await values(harness) == [[PEN]]

    run_app(test, copied(item), topics={"in": 1, "out": 1})


def test_an_id_that_the_registry_lacks_is_bad_data(server: Server) -> None:
    """The deserialization handler decides about the record, and others are read."""
    item = SchemaRegistry(server.url).avro(Item)

    async def test(harness: AppHarness) -> None:
        good = elsewhere(server, lambda other: other.avro(Item), PEN, INK)
        await harness.produce_all("in", [good[0], TestRecord("k", b"\0\0\0\0\x63abc", 1), TestRecord("k", b"plain", 2), good[1]])
        await harness.caught_up()
        assert await values(harness) == [PEN, INK]
        letters = await harness.read("dead")
        assert [letter.value for letter in letters] == [b"\0\0\0\0\x63abc", b"plain"]
        reasons = [dict(letter.headers)["__streams.errors.message"] for letter in letters]
        assert b"schema 99 is not in http" in (reasons[0] or b"")
        assert b"not in the format of a registry" in (reasons[1] or b"")

    config: dict[str, Any] = {"deserialization_exception_handler": "continue", "errors_dead_letter_queue_topic_name": "dead"}
    run_app(test, copied(item), topics={"in": 1, "out": 1, "dead": 1}, **config)


@in_virtual_time
async def test_no_record_is_lost_while_the_registry_is_away() -> None:
    """An app that waits in vain for a schema ends with that error; its next start reads the record."""
    with serving(InMemoryRegistry()) as server:
        item = SchemaRegistry(server.url, deadline_ms=50).avro(Item)
        async with AppHarness(copied(item), topics={"in": 1, "out": 1}) as harness:
            await harness.produce_all("in", elsewhere(server, lambda other: other.avro(Item), PEN))
            await harness.caught_up()
            later = elsewhere(server, lambda other: other.avro(Priced), Priced("ink", 5))
            server.answer = lambda _method, _path: (503, {})
            await harness.produce_all("in", later)
            assert isinstance(await harness.ended(), RegistryUnavailable)
            server.answer = lambda _method, _path: None
            await harness.restart()
            await harness.caught_up()
            assert await values(harness) == [PEN, INK]


async def test_the_loop_is_free_while_a_schema_is_looked_up(server: Server) -> None:
    """Other tasks of the process go on, and the record is processed when the answer comes."""
    asked, answered = threading.Event(), threading.Event()

    def slow(_method: str, path: str) -> None:
        if path.startswith("/schemas/ids/"):
            asked.set()
            answered.wait()

    item = SchemaRegistry(server.url).avro(Item)
    seen = asyncio.Event()
    builder = StreamsBuilder()
    builder.stream("in", Consumed(serdes.STRING, item)).foreach(lambda _key, value: seen.set() if value == INK else None)
    async with (
        EmbeddedLog() as log,
        App(builder.build(), StreamsConfig(application_id="app", commit_interval_ms=10), log=log, topics={"in": 1}) as app,
    ):
        (record,) = elsewhere(server, lambda other: other.avro(Priced), Priced("ink", 5))
        server.answer = slow
        await send(log, record)
        await asyncio.to_thread(asked.wait)
        assert not seen.is_set()
        assert app.state.name == "RUNNING"
        answered.set()
        await seen.wait()


async def send(log: EmbeddedLog, record: TestRecord[Any, Any]) -> None:
    producer = await log.producer(client_id="test")
    try:
        await producer.send([Outgoing(TopicPartition("in", 0), Batch([b"k"], [record.value], [record.timestamp]))])
    finally:
        await producer.close()


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@in_virtual_time
async def test_rows_of_earlier_versions_are_read_after_a_restart(store: Any) -> None:
    """A new version of the app reads rows, on disk or restored, that were written by the last one's schema."""
    with serving(InMemoryRegistry()) as server:

        def topology(type_: Any) -> Topology:
            registry = SchemaRegistry(server.url)
            builder = StreamsBuilder()
            builder.table("in", Consumed(serdes.STRING, registry.avro(type_)), Materialized("rows", store_type=store))
            return builder.build()

        async with AppHarness(topology(Item), topics={"in": 1}) as harness:
            await harness.produce_all("in", elsewhere(server, lambda other: other.avro(Item), PEN, INK))
            await harness.caught_up()
            await harness.close()
            await harness.restart(topology(Priced))
            assert [row async for row in harness.app.store("rows").all()] == [("k0", Priced("pen", 120)), ("k1", Priced("ink", 5))]


def test_topics_that_a_function_names_are_known_before_the_start(server: Server) -> None:
    """By the option `topics`, or by subjects of records; any other topic is an error that says so."""
    registry = SchemaRegistry(server.url)

    def topology(serde: Serde[Any]) -> Topology:
        builder = StreamsBuilder()
        builder.stream("in", Consumed(serdes.STRING, serde)).to(lambda _key, _value, _context: "out", Produced(serdes.STRING, serde))
        return builder.build()

    async def test(harness: AppHarness) -> None:
        await harness.produce_all("in", elsewhere(server, lambda other: other.avro(Item), PEN))
        await harness.caught_up()
        assert [(record.value or b"")[5:] for record in await harness.read("out", value=serdes.BYTES)] == [b"\x06pen\xf0\1"]

    options: dict[str, Any] = {"topics": {"in": 1, "out": 1}}
    with pytest.raises(ProductionFailed, match="name topics that a function chooses in its option topics, or use subject='record'"):
        run_app(test, topology(registry.avro(Item)), **options)
