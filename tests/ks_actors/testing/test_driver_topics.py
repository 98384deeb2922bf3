"""The topics of the test drivers: those that are read must be written by the topology, and both drivers take typed records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ks_actors import ErrorContext, FailedRecord, HandlerResponse, Response, StreamsConfig, UnknownTopicOrPartition
from ks_actors.config import DeadLetter
from ks_actors.dsl import Consumed, Grouped, Materialized, Produced, StreamsBuilder
from ks_actors.serdes import LONG, STRING
from ks_actors.testing import AsyncTopologyTestDriver, TestOutputTopic, TestRecord, TopologyTestDriver
from ks_actors.topology import Topology

LOOKS: dict[str, Callable[[TestOutputTopic[str, str]], object]] = {
    "is_empty": lambda topic: topic.is_empty,
    "queue_size": lambda topic: topic.queue_size,
    "read_record": lambda topic: topic.read_record(),
    "read_value": lambda topic: topic.read_value(),
    "read_values_to_list": lambda topic: topic.read_values_to_list(),
    "read_key_values_to_map": lambda topic: topic.read_key_values_to_map(),
}


def copying() -> Topology:
    """Copy `in` to `out`."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).to("out", Produced(STRING, STRING))
    return builder.build()


@pytest.mark.parametrize("look", LOOKS)
def test_a_look_at_a_topic_that_nothing_writes_is_an_error(look: str) -> None:
    """A typo must not read as an empty topic, in which way ever the output is looked at."""
    with TopologyTestDriver(copying()) as driver:
        misspelt = driver.create_output_topic("outt", STRING, STRING)
        driver.create_input_topic("in", STRING, STRING).pipe_input("a", "x")
        with pytest.raises(UnknownTopicOrPartition, match=r"^the topology writes no topic 'outt'; it writes out$"):
            LOOKS[look](misspelt)
        with pytest.raises(UnknownTopicOrPartition, match="the topology writes no topic 'outt'"):
            driver.count("outt")
        assert driver.create_output_topic("out", STRING, STRING).read_values_to_list() == ["x"]


async def test_the_asynchronous_driver_refuses_such_a_look_too() -> None:
    """The rule is the same for both drivers."""
    async with AsyncTopologyTestDriver(copying()) as driver:
        with pytest.raises(UnknownTopicOrPartition, match="the topology writes no topic 'outt'; it writes out"):
            assert driver.create_output_topic("outt", STRING, STRING).is_empty


def test_all_topics_that_a_topology_writes_may_be_empty() -> None:
    """Sinks, repartition topics by either name, changelogs, and the dead letters of the app."""
    builder = StreamsBuilder()
    words = builder.stream("in", Consumed(STRING, STRING)).group_by(lambda _, word: word, Grouped(STRING, STRING, name="words"))
    words.count(Materialized("counts", STRING, LONG)).to_stream().to("out", Produced(STRING, LONG))
    with TopologyTestDriver(builder.build(), {"errors_dead_letter_queue_topic_name": "letters"}) as driver:
        for topic in ("out", "words-repartition", "test-words-repartition", "test-counts-changelog", "letters"):
            assert driver.create_output_topic(topic, STRING, STRING).is_empty, topic
        with pytest.raises(UnknownTopicOrPartition, match="it writes letters, out, test-counts-changelog, test-words-repartition"):
            assert driver.create_output_topic("counts", STRING, STRING).is_empty


def test_any_topic_may_be_one_that_a_sink_chooses() -> None:
    """A function's topics are unknown until it has chosen them."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).to(lambda key, _value, _context: f"of-{key}", Produced(STRING, STRING))
    with TopologyTestDriver(builder.build()) as driver:
        chosen = driver.create_output_topic("of-a", STRING, STRING)
        assert chosen.is_empty
        driver.create_input_topic("in", STRING, STRING).pipe_input("a", "x")
        assert chosen.read_value() == "x"


def test_any_topic_may_be_one_that_a_handler_chooses() -> None:
    """The dead letters of a handler of one's own go where it says."""

    def elsewhere(_context: ErrorContext, _record: FailedRecord, _error: Exception) -> Response:
        return Response(HandlerResponse.RESUME, (DeadLetter("elsewhere", b"a", b"lost", 0),))

    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).map_values(lambda value: str(int(value))).to("out", Produced(STRING, STRING))
    config: dict[str, Any] = {"processing_exception_handler": elsewhere}
    with TopologyTestDriver(builder.build(), config) as driver:
        letters = driver.create_output_topic("elsewhere", STRING, STRING)
        numbers = driver.create_input_topic("in", STRING, STRING)
        numbers.pipe_input("a", "1")
        assert letters.is_empty
        numbers.pipe_input("a", "one")
        assert letters.read_key_values_to_list() == [("a", "lost")]


async def test_the_asynchronous_driver_takes_typed_records() -> None:
    """Serdes, start, advance and headers are as those of the other driver's input."""
    async with AsyncTopologyTestDriver(copying(), StreamsConfig(application_id="test"), initial_wall_clock_ms=1_000) as driver:
        topic = driver.create_input_topic("in", STRING, STRING, auto_advance_ms=500)
        out = driver.create_output_topic("out", STRING, STRING)
        await topic.pipe_input("a", "1", headers=(("kind", b"x"),))
        topic.advance_time(10)
        await topic.pipe_key_value_list([("b", "2"), (None, None)])
        await topic.pipe_input("c", "3", 7)
        await topic.pipe_raw(b"d", None, 8)
        assert out.read_records_to_list() == [
            TestRecord("a", "1", 1_000, (("kind", b"x"),)),
            TestRecord("b", "2", 1_510),
            TestRecord(None, None, 2_010),
            TestRecord("c", "3", 7),
            TestRecord("d", None, 8),
        ]
        late = driver.create_input_topic("in", STRING, STRING, start_timestamp_ms=5)
        await late.pipe_input("e", "5")
        assert out.read_record().timestamp == 5


def test_values_are_read_to_a_list() -> None:
    """Each record is read once, tombstones too."""
    with TopologyTestDriver(copying()) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_key_value_list([("a", "1"), ("a", None), ("b", "2")])
        out = driver.create_output_topic("out", STRING, STRING)
        assert out.read_values_to_list() == ["1", None, "2"]
        assert out.read_values_to_list() == []
