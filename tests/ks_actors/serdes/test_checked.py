"""Serializers of users that do not return bytes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from ks_actors import ProcessingFailed, Processor, ProductionFailed, Record, SerializationError, stores
from ks_actors.dsl import Consumed, Materialized, Produced, StreamsBuilder
from ks_actors.serdes import STRING, Serde, checked_serializer
from ks_actors.testing import AppHarness, TopologyTestDriver, run_app


class Own(Serde[Any]):
    """A serde of a class of the user's."""

    def __init__(self, serialize: Callable[[Any], Any]) -> None:
        self._serialize = serialize

    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[Any], Any]:
        return self._serialize

    def deserializer(self, topic: str, *, is_key: bool = False) -> Callable[[bytes], Any]:
        return bytes.decode


class Keeping(Processor[str, str, str, str]):
    """Has a store, for the test to fill."""

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


def made(how: str, serialize: Callable[[Any], Any]) -> Serde[Any]:
    return Own(serialize) if how == "class" else Serde.of(serialize, bytes.decode)


@pytest.mark.parametrize("how", ["class", "functions"])
def test_a_serializer_that_returns_no_bytes_is_at_fault_itself(how: str) -> None:
    """Text, numbers and None are refused with the name of the serde; what is like bytes becomes bytes."""
    results: tuple[Any, ...] = ("text", 5, None)
    for result in results:
        write = checked_serializer(made(how, {"value": result}.__getitem__), "topic")
        with pytest.raises(TypeError, match=r"returned .* for a value: a serializer returns bytes"):
            write("value")
    for like in (bytearray(b"x"), memoryview(b"x"), b"x"):
        data = checked_serializer(made(how, {"value": like}.__getitem__), "topic")("value")
        assert (type(data), data) == (bytes, b"x")
    assert checked_serializer(made(how, lambda _: None), "topic", null=True)("value") is None
    assert checked_serializer(STRING, "topic") == str.encode


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
def test_a_global_table_names_the_record_that_a_serde_gives_no_bytes_for(store: str, part: str) -> None:
    """The app ends by the error of that record, with its node and its place in the global topic."""
    bad = made("functions", lambda value: value if value == "bad" else value.encode())
    serdes = (bad, STRING) if part == "key" else (STRING, bad)
    builder = StreamsBuilder()
    table = builder.global_table("names", Consumed(*serdes), Materialized("names", *serdes))
    builder.stream("in", Consumed(STRING, STRING)).join(table, lambda key, _: key, lambda one, two: f"{one}{two}").to("out", Produced(STRING, STRING))

    async def test(harness: AppHarness) -> Exception | None:
        await harness.produce("names", b"good", b"good")
        await harness.produce("names", *((b"bad", b"good") if part == "key" else (b"good", b"bad")))
        return await harness.ended(60_000)

    error = run_app(test, builder.build(), topics={"names": 1, "in": 1, "out": 1}, default_dsl_store=store)
    assert isinstance(error, ProcessingFailed)
    assert (error.node, error.topic, error.partition, error.offset) == ("KTABLE-SOURCE-0000000001", "names", 0, 1)
    assert f"returned str for a {part}: a serializer returns bytes" in str(error)


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("how", ["class", "functions"])
def test_a_sink_names_the_record_that_a_serde_gives_no_bytes_for(how: str, part: str) -> None:
    """The production exception handler hears of that record alone, with its place in the input."""
    bad = made(how, lambda value: value if value == "bad" else value.encode())
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).to("out", Produced(bad, STRING) if part == "key" else Produced(STRING, bad))
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", STRING, STRING)
        source.pipe_input("good", "good", 0)
        with pytest.raises(ProductionFailed, match="topic in, partition 0, offset 1") as raised:
            source.pipe_input("bad", "bad", 1)
        assert f"returned str for a {part}" in str(raised.value)


@pytest.mark.parametrize("how", ["class", "functions"])
def test_a_store_refuses_a_value_that_its_serde_gives_no_bytes_for(how: str) -> None:
    """The put raises, and names the store and the key."""
    bad = made(how, lambda value: value if value == "bad" else value.encode())
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("store", STRING, bad))
    builder.stream("in", Consumed(STRING, STRING)).process(Keeping, "store")
    with TopologyTestDriver(builder.build()) as driver:
        store = driver.get_state_store("store")
        store.put("a", "good")
        with pytest.raises(SerializationError, match="store store: the serde cannot write the value of key 'b'"):
            store.put("b", "bad")


@pytest.mark.parametrize("how", ["class", "functions"])
def test_a_serializer_that_writes_a_key_in_two_ways_is_told_of(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """One warning names the serde and the topic; values are not looked at, nor is a serde that writes a key in one way told of."""
    drawn = count()
    serde = made(how, lambda text: f"{next(drawn)}{text}".encode())
    write = checked_serializer(serde, "orders", is_key=True)
    for _ in range(3):
        write("key")
    assert [repr(serde) in record.getMessage() and "keys of orders" in record.getMessage() for record in caplog.records] == [True]
    checked_serializer(serde, "orders")("value")
    checked_serializer(made(how, str.encode), "orders", is_key=True)("key")
    assert len(caplog.records) == 1
