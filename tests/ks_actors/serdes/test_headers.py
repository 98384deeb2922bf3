"""Serdes and partitioners that take the record's headers (KIP-1321)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ks_actors import StreamsConfig, TopologyError, serdes
from ks_actors.dsl import Consumed, Materialized, Produced, StreamsBuilder, TableJoined
from ks_actors.records import Headers
from ks_actors.serdes import HeaderSerde, MutableHeaders
from ks_actors.testing import AppHarness, TestRecord, TopologyTestDriver, run_app
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import in_virtual_time

MARK = ("mark", b"1")


class Shifted(HeaderSerde[str]):
    """Text that is shifted by a number, which is in a header, or in front of the text."""

    def __init__(self, by: int = 1) -> None:
        self.by = by

    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[str], bytes]:
        return lambda text: bytes([self.by]) + self.shifted(text, self.by)

    def deserializer(self, topic: str, *, is_key: bool = False) -> Callable[[bytes], str]:
        return lambda data: self.shifted(data[1:].decode(), -data[0]).decode()

    def serializer_with_headers(self, topic: str, *, is_key: bool = False) -> Callable[[str, MutableHeaders], bytes]:
        def write(text: str, headers: MutableHeaders) -> bytes:
            headers.append((name(is_key=is_key), bytes([self.by])))
            return self.shifted(text, self.by)

        return write

    def deserializer_with_headers(self, topic: str, *, is_key: bool = False) -> Callable[[bytes, MutableHeaders], str]:
        plain = self.deserializer(topic, is_key=is_key)

        def read(data: bytes, headers: MutableHeaders) -> str:
            own = next((each for each in headers if each[0] == name(is_key=is_key)), None)
            if own is None or own[1] is None:
                return plain(data)
            headers.remove(own)
            return self.shifted(data.decode(), -own[1][0]).decode()

        return read

    @staticmethod
    def shifted(text: str, by: int) -> bytes:
        return "".join(chr(ord(each) + by) for each in text).encode()


def name(*, is_key: bool) -> str:
    return "key-shift" if is_key else "value-shift"


def copied(key: Any, value: Any, target: Produced[Any, Any]) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", Consumed(key, value)).map_values(lambda text: text and text.upper()).to("out", target)
    return builder.build()


def test_deserializers_take_headers_and_leave_the_rest() -> None:
    """A node sees the headers that the deserializers leave, key's first; the next sink writes these."""
    with TopologyTestDriver(copied(Shifted(), Shifted(2), Produced(serdes.STRING, serdes.STRING))) as driver:
        source = driver.create_input_topic("in", serdes.BYTES, serdes.BYTES)
        source.pipe_input(b"l", b"xcn", 5, (("key-shift", b"\1"), MARK, ("value-shift", b"\2")))
        out = driver.create_output_topic("out", serdes.STRING, serdes.STRING)
        assert out.read_record() == TestRecord("k", "VAL", 5, (MARK,))


def test_serializers_change_the_headers_of_their_record_only() -> None:
    """A sink writes each record with its own headers and those that its serializers add, key's first, once."""
    topology = copied(serdes.STRING, serdes.STRING, Produced(Shifted(), Shifted(2)))

    async def test(harness: AppHarness) -> None:
        await harness.produce_all("in", [TestRecord("k", "v", 5, (MARK,)), TestRecord(None, "v", 6), TestRecord("k", None, 7, (MARK,))])
        await harness.caught_up()
        assert await harness.read("out", key=serdes.BYTES, value=serdes.BYTES) == [
            TestRecord(b"l", b"X", 5, (MARK, ("key-shift", b"\1"), ("value-shift", b"\2"))),
            TestRecord(None, b"X", 6, (("value-shift", b"\2"),)),
            TestRecord(b"l", None, 7, (MARK, ("key-shift", b"\1"))),
        ]

    run_app(test, topology, topics={"in": 1, "out": 1})


def test_records_without_any_header_are_read_and_written_without() -> None:
    """The plain pair of functions reads a batch of records that have no headers at all."""
    with TopologyTestDriver(copied(serdes.STRING, Shifted(), Produced(serdes.STRING, serdes.STRING))) as driver:
        source = driver.create_input_topic("in", serdes.STRING, serdes.BYTES)
        source.pipe_input("k", b"\3y", 5)
        assert driver.create_output_topic("out", serdes.STRING, serdes.STRING).read_value() == "V"


def test_a_dead_letter_has_the_headers_of_the_log() -> None:
    """Headers that a deserializer took away before the other one failed are in the dead letter."""
    given: Headers = (("key-shift", b"\1"), MARK, ("value-shift", b"\0"))
    config: dict[str, Any] = {"deserialization_exception_handler": "continue", "errors_dead_letter_queue_topic_name": "dead"}
    with TopologyTestDriver(copied(Shifted(), Shifted(), Produced(serdes.STRING, serdes.STRING)), config) as driver:
        driver.create_input_topic("in", serdes.BYTES, serdes.BYTES).pipe_input(b"l", b"\xff", 5, given)
        letter = driver.create_output_topic("dead", serdes.BYTES, serdes.BYTES).read_record()
        assert (letter.key, letter.value, letter.headers[: len(given)]) == (b"l", b"\xff", given)


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@in_virtual_time
async def test_rows_of_a_table_whose_topic_is_its_changelog_have_no_headers(store: Any) -> None:
    """A row that is restored from a source topic is the one that processing made, with the headers' part in front."""
    builder = StreamsBuilder()
    builder.table("in", Consumed(Shifted(), Shifted(2)), Materialized("rows", store_type=store))
    topology = builder.build(StreamsConfig(application_id="app", topology_optimization="reuse.ktable.source.topics"))
    async with AppHarness(
        topology, topics={"in": 1}, topology_optimization="reuse.ktable.source.topics", deserialization_exception_handler="continue"
    ) as harness:
        await harness.produce_all(
            "in",
            [
                TestRecord("a", "x", 5, (MARK,)),
                TestRecord("b", "y", 6),
                TestRecord("a", None, 7),
                TestRecord("b", b"\xff", 8, (("value-shift", b"\0"),)),
            ],
        )
        await harness.caught_up()
        assert [row async for row in harness.app.store("rows").all()] == [("b", "y")]
        await harness.close()
        harness.wipe_state()
        await harness.start()
        assert [row async for row in harness.app.store("rows").all()] == [("b", "y")]


@pytest.mark.parametrize("topics", [1, 3])
def test_a_partitioner_with_five_parameters_gets_the_headers(topics: int) -> None:
    """It gets topic, key, value, the headers that the serializers have left, and the number of partitions, in Kafka's order."""
    seen: list[Any] = []

    def choose(topic: str, key: str, value: str, headers: Headers, partitions: int) -> int:
        seen.append((topic, key, value, headers, partitions))
        return partitions - 1

    topology = copied(serdes.STRING, serdes.STRING, Produced(serdes.STRING, Shifted(), partitioner=choose))

    async def test(harness: AppHarness) -> None:
        await harness.produce_all("in", [TestRecord("k", "v", 5, (MARK,)), TestRecord("k", "w", 6)])
        await harness.caught_up()

    run_app(test, topology, topics={"in": 1, "out": topics})
    assert seen == [("out", "k", "V", (MARK, ("value-shift", b"\1")), topics), ("out", "k", "W", (("value-shift", b"\1"),), topics)]


def test_partitioners_of_foreign_key_joins_get_the_headers() -> None:
    """A partitioner of TableJoined may have five parameters, too; its value is None."""
    seen: set[Any] = set()

    def choose(_topic: str, key: str, value: Any, headers: Headers, partitions: int) -> int:
        seen.add((key, value, headers, partitions))
        return 0

    builder = StreamsBuilder()
    strings = Consumed(serdes.STRING, serdes.STRING)
    left, right = builder.table("left", strings), builder.table("right", strings)
    left.join(right, lambda one, other: one + other, foreign_key=lambda value: value, joined=TableJoined("j", choose, choose))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("right", serdes.STRING, serdes.STRING).pipe_input("r", "v", 4)
        driver.create_input_topic("left", serdes.STRING, serdes.STRING).pipe_input("l", "r", 5, (MARK,))
    assert {key for key, *_ in seen} == {"l", "r"}


def test_a_partitioner_of_six_parameters_is_refused() -> None:
    """The error says how many arguments a partitioner gets, at once."""

    def choose(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> int:
        raise AssertionError((a, b, c, d, e, f))

    with pytest.raises(TopologyError, match="four arguments or five arguments"):
        Produced(partitioner=choose)  # type: ignore[arg-type]
