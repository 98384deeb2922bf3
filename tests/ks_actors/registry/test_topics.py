"""Programs that send and read records with schemas in a registry over HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from click.testing import CliRunner

from ks_actors import App, DeserializationFailed, NotRunning, Publisher, StreamsConfig, Topic, TopicRecord
from ks_actors.cli._main import ks_actors
from ks_actors.dsl import Consumed, StreamsBuilder
from ks_actors.log import NewTopic
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.registry import InMemoryRegistry, RegistryUnavailable, SchemaIncompatible, SchemaRegistry
from ks_actors.serdes import STRING, Serde, inferred, is_same, list_of
from ks_actors.testing import AppHarness, TestRecord, TopologyTestDriver
from tests.ks_actors.registry.messages import Item
from tests.ks_actors.registry.server import Server, serving
from tests.ks_actors.registry.test_apps import INK, PEN, Priced, copied
from tests.ks_actors.runtime.helpers import in_virtual_time

FORMATS = ["avro", "json_schema"]
PLACES: list[Any] = ["prefix", "header"]


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(InMemoryRegistry()) as made:
        yield made


@asynccontextmanager
async def publishing(**settings: Any) -> AsyncIterator[tuple[Publisher, EmbeddedLog]]:
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("in", 1)])
        async with Publisher({"bootstrap_servers": "nowhere:1", **settings}, log=log) as publisher:
            yield publisher, log


async def read(publisher: Publisher, topic: Topic[Any, Any], **options: Any) -> list[TopicRecord[Any, Any]]:
    return [record async for record in publisher.records(topic, until="end", **options)]


def items(server: Server, type_: Any = Item, make: str = "avro", **options: Any) -> Topic[str, Any]:
    """Return the topic as a program has it: with a client and serdes of its own."""
    return Topic("in", STRING, getattr(SchemaRegistry(server.url, deadline_ms=50), make)(type_, **options))


@pytest.mark.parametrize("ids", PLACES)
@pytest.mark.parametrize("make", FORMATS)
async def test_schemas_are_found_before_records_are_sent_and_read(make: str, ids: Any, server: Server) -> None:
    """A reader that does not know an id asks for it; ids in headers are taken out."""
    async with publishing() as (publisher, _):
        await publisher.send(items(server, make=make, ids=ids), "a", PEN, headers=(("h", b"1"),))
        assert await publisher.send_many(items(server, Priced, make, ids=ids), [("b", Priced("ink", 5))]) == 1
        assert server.registry.subjects() == ["in-value"]
        found = await read(publisher, items(server, make=make))
        assert [(each.value, each.headers) for each in found] == [(PEN, (("h", b"1"),)), (INK, ())]


async def test_schemas_within_other_serdes_are_found_too(server: Server) -> None:
    """A serde of lists has its part's ids found."""

    def lists() -> Topic[str, list[Item]]:
        return Topic("in", str, list_of(SchemaRegistry(server.url).avro(Item)))

    async with publishing() as (publisher, _):
        await publisher.send(lists(), "a", [PEN, INK])
        assert [each.value for each in await read(publisher, lists())] == [[PEN, INK]]


class Held:
    """Answers of a server that are held back."""

    def __init__(self, server: Server) -> None:
        self.asked, self._answered = threading.Event(), threading.Event()
        server.answer = self._hold

    def _hold(self, _method: str, _path: str) -> None:
        self.asked.set()
        self._answered.wait()

    async def begun(self) -> None:
        await asyncio.to_thread(self.asked.wait)

    def end(self) -> None:
        self._answered.set()


async def test_calls_at_the_same_time_wait_for_one_lookup_and_keep_their_order(server: Server) -> None:
    """Also those that come when the answer has come, before the first ones go on."""
    held, topic = Held(server), items(server)
    async with publishing() as (publisher, _):
        calls = [asyncio.ensure_future(publisher.send(topic, "a", Item("pen", cents))) for cents in range(100)]
        await held.begun()
        many = asyncio.ensure_future(publisher.send_many(topic, [("a", Item("pen", cents)) for cents in range(100, 200)]))
        cancelled = asyncio.ensure_future(publisher.send(topic, "a", INK))
        await asyncio.sleep(0)
        assert cancelled.cancel()

        first, loop = calls[0], asyncio.get_running_loop()

        def late(cents: int) -> None:
            # In each turn of the loop, from before the answer to after it.
            if not first.done():
                calls.append(asyncio.ensure_future(publisher.send(topic, "a", Item("pen", cents))))
                loop.call_soon(late, cents + 1)

        late(200)
        held.end()
        await first
        await asyncio.gather(*calls, many)
        cents: list[int] = [each.value.cents for each in await read(publisher, topic) if each.value is not None]
        singles = [each for each in cents if each not in range(100, 200)]
        assert singles == sorted(singles)
        assert sorted(cents) == list(range(len(cents)))
        assert [request for request in server.registry.requests if request.startswith("POST")] == ["POST /subjects/in-value/versions"]


@in_virtual_time
async def test_an_error_of_the_registry_names_the_topic_and_the_next_call_asks_again() -> None:
    """Each of the calls that waited gets it; nothing is sent."""
    with serving(InMemoryRegistry()) as server:
        topic = items(server)
        server.registry.refuse("in-value", "cents must not be")
        async with publishing() as (publisher, _):
            errors = await asyncio.gather(*(publisher.send(topic, "a", PEN) for _ in range(3)), return_exceptions=True)
            assert len(set(map(id, errors))) == 3
            for error in errors:
                assert isinstance(error, SchemaIncompatible)
                assert error.status == 409
                assert str(error).startswith("no record was sent to topic in: http")
            server.answer = lambda _method, _path: (503, {})
            with pytest.raises(RegistryUnavailable, match=r"no record was sent to topic in: .* gave no answer"):
                await publisher.send_many(topic, [("a", PEN)])
            server.answer = lambda _method, _path: None
            server.registry._refused.clear()
            await publisher.send(topic, "a", PEN)
            server.answer = lambda _method, _path: (503, {})
            with pytest.raises(RegistryUnavailable, match=r"records of in-0 are not read: .* gave no answer"):
                await read(publisher, items(server))
            server.answer = lambda _method, _path: None
            assert [each.value for each in await read(publisher, items(server))] == [PEN]


async def test_an_id_that_the_registry_lacks_is_a_bad_record(server: Server) -> None:
    """It is told by its place, or skipped."""
    async with publishing() as (publisher, _):
        await publisher.send("in", "a", b"\0\0\0\0\x63abc", key_serde=str, value_serde=bytes)
        await publisher.send(items(server), "a", PEN)
        with pytest.raises(DeserializationFailed, match="schema 99 is not in http"):
            await read(publisher, items(server))
        assert [each.value for each in await read(publisher, items(server), skip_bad=True)] == [PEN]


async def test_a_call_waits_for_the_registry_until_its_deadline(server: Server) -> None:
    """That of deliveries; the others that wait have their own."""
    held, topic = Held(server), items(server)
    async with publishing(delivery_timeout_ms=30) as (publisher, _):
        with pytest.raises(RegistryUnavailable, match=r"no record was sent to topic in: .* within 30 ms \(delivery_timeout_ms\)"):
            await publisher.send(topic, "a", PEN)
        held.end()


async def test_a_close_waits_for_lookups_of_sent_records_and_ends_those_of_readers(server: Server) -> None:
    """Records that still wait at `close_timeout_ms` are not sent."""
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("in", 1)])
        async with Publisher(log=log) as publisher:
            await publisher.send(items(server), "a", PEN)
            held = Held(server)
            reading = asyncio.ensure_future(read(publisher, items(server)))
            await held.begun()
            sending = asyncio.ensure_future(publisher.send(items(server), "a", INK))
            await asyncio.sleep(0)
            closing = asyncio.ensure_future(publisher.close())
            with pytest.raises(NotRunning, match="records of in-0 are not read: the Publisher was closed"):
                await reading
            held.end()
            await closing
            assert (await sending).offset == 1
        held = Held(server)
        async with Publisher({"close_timeout_ms": 20}, log=log) as publisher:
            sending = asyncio.ensure_future(publisher.send(items(server), "a", INK))
            await held.begun()
        with pytest.raises(NotRunning, match="no record was sent to topic in: the Publisher was closed"):
            await sending
        held.end()


@pytest.mark.parametrize("ids", PLACES)
async def test_an_app_sends_and_reads_with_the_serdes_of_its_topology(ids: Any, server: Server) -> None:
    """Also those of a merged stream, which follow from its parts."""
    item: Serde[Any] = SchemaRegistry(server.url).avro(Item, ids=ids)
    builder = StreamsBuilder()
    one, other = (builder.stream(name, Consumed(STRING, item)) for name in ("in", "more"))
    one.merge(other).to("out")
    topics = {"in": 1, "more": 1, "out": 1}
    async with EmbeddedLog() as log, App(builder.build(), StreamsConfig(application_id="app"), log=log, topics=topics) as app:
        await app.send("in", "a", PEN)
        await app.wait_until_caught_up()
        assert [(each.value, each.headers) async for each in app.records("out", until="end")] == [(PEN, ())]
        raw = [each async for each in app.records("out", until="end", key_serde=bytes, value_serde=bytes)]
        assert [name for each in raw for name, _ in each.headers] == (["__value_schema_id"] if ids == "header" else [])


@pytest.mark.parametrize("ids", PLACES)
def test_an_inferred_serde_takes_headers_as_the_one_that_it_stands_for(ids: Any) -> None:
    """In a Topic, too: an app's default comes before it, as in a topology."""
    item: Serde[Any] = SchemaRegistry(InMemoryRegistry()).avro(Item, ids=ids)
    stands_for: Any = inferred(item)
    topic = Topic("in", STRING, stands_for)
    with TopologyTestDriver(copied(item)) as driver:
        driver.create_input_topic(topic).pipe_input("a", PEN, 5)
        assert driver.create_output_topic("out", STRING, stands_for).read_record() == TestRecord("a", PEN, 5)

    async def test() -> None:
        async with publishing() as (publisher, _):
            await publisher.send(topic, "a", PEN)
            assert [(each.value, each.headers) for each in await read(publisher, topic)] == [(PEN, ())]
            (raw,) = await read(publisher, Topic("in", str, bytes))
            assert [name for name, _ in raw.headers] == (["__value_schema_id"] if ids == "header" else [])

    asyncio.run(test())


@pytest.mark.parametrize("ids", PLACES)
@in_virtual_time
async def test_the_harness_writes_and_reads_topics_of_a_registry(ids: Any) -> None:
    """As the app's own calls do, in virtual time."""
    with serving(InMemoryRegistry()) as server:
        item = SchemaRegistry(server.url).avro(Item, ids=ids)
        async with AppHarness(copied(item), topics={"in": 1, "out": 1}) as harness:
            await harness.produce("in", "a", PEN)
            await harness.app.send("in", "b", INK)
            await harness.caught_up()
            other: Serde[Any] = SchemaRegistry(server.url).avro(Item)
            assert [each.value for each in await harness.read("out", value=other)] == [PEN, INK]
            assert [each.value async for each in harness.app.records("out", until="end")] == [PEN, INK]


@pytest.mark.parametrize("ids", PLACES)
def test_the_driver_pipes_and_reads_topics_of_a_registry(ids: Any, server: Server) -> None:
    """It waits for the registry where a serde needs it."""
    item = SchemaRegistry(server.url).avro(Item, ids=ids)
    with TopologyTestDriver(copied(item)) as driver:
        driver.create_input_topic("in", STRING, item).pipe_input("a", PEN, 5, (("h", b"1"),))
        found = driver.create_output_topic("out", STRING, SchemaRegistry(server.url).avro(Item)).read_record()
        assert found == TestRecord("a", PEN, 5, (("h", b"1"),))


def test_the_commands_send_and_show_topics_of_a_registry(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `ks-actors dev`, by the serdes of the topology: ids are looked up, and headers have them."""
    monkeypatch.setenv("REGISTRY_URL", server.url)
    commands = 'send in a={"name": "pen", "cents": 120}\ntail in\n'
    result = CliRunner().invoke(ks_actors, ["dev", "tests.ks_actors.registry.jobs:shop"], input=commands)
    assert result.exit_code == 0, result.stderr
    text = 'a\t{"name":"pen","cents":120}'
    assert sorted(result.stdout.splitlines()) == [f"in\t{text}", f"out\t{text}"]


def test_serdes_with_other_options_are_not_the_same() -> None:
    """Registry, schema and options tell serdes apart, where a merge or two Topics of one name compare them."""
    registry = SchemaRegistry(InMemoryRegistry())
    made = registry.avro(Item)
    assert is_same(made, registry.avro(Item))
    for other in (registry.avro(Item, ids="header"), registry.avro(Item, subject="record"), SchemaRegistry(InMemoryRegistry()).avro(Item)):
        assert not is_same(made, other)
