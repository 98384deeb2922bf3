"""A topic that is read twice has one source, so that its options must be the same: no option is accepted and ignored."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from ks_actors._errors import TopologyError
from ks_actors.dsl import Consumed, Materialized, StreamsBuilder
from ks_actors.processors import Processor
from ks_actors.serdes import BYTES, LONG, STRING, Serde, json, list_of, msgpack, windowed
from ks_actors.topology import WallclockTimestampExtractor, stores


class Reversed(Serde[str]):
    """Write texts from their end, in an encoding that is told."""

    def __init__(self, encoding: str) -> None:
        self._encoding: str = encoding

    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[str], bytes]:
        return lambda text: text[::-1].encode(self._encoding)

    def deserializer(self, topic: str, *, is_key: bool = False) -> Callable[[bytes], str]:
        return lambda data: data.decode(self._encoding)[::-1]


def by_value(record: Any, _: int) -> int:
    return int(record.value)


def functions(encoding: str) -> Serde[str]:
    return Serde.of(lambda text: text.encode(encoding), lambda data: data.decode(encoding))


SAME: dict[str, tuple[Consumed[Any, Any] | None, Consumed[Any, Any] | None]] = {
    "nothing": (None, Consumed()),
    "names are not compared": (Consumed(STRING, LONG, name="a"), Consumed(STRING, LONG, name="b")),
    "typed serdes that were made twice": (Consumed(json(str), msgpack(dict[str, int])), Consumed(json(str), msgpack(dict[str, int]))),
    "lists and windows": (Consumed(windowed(STRING, 5), list_of(LONG)), Consumed(windowed(STRING, 5), list_of(LONG))),
    "a serde of one's own with the same attributes": (Consumed(STRING, Reversed("utf-8")), Consumed(STRING, Reversed("utf-8"))),
    "extractors": (Consumed(timestamp_extractor=by_value), Consumed(timestamp_extractor=by_value)),
    "Kafka Streams' extractors": (
        Consumed(timestamp_extractor=WallclockTimestampExtractor()),
        Consumed(timestamp_extractor=WallclockTimestampExtractor()),
    ),
    "offset resets": (Consumed(offset_reset="latest"), Consumed(offset_reset="latest")),
}
DIFFERENT: dict[str, tuple[Consumed[Any, Any], Consumed[Any, Any], str]] = {
    "values": (Consumed(STRING, LONG), Consumed(STRING, BYTES), "value is <Serde LONG> and <Serde BYTES>"),
    "keys": (Consumed(STRING, LONG), Consumed(LONG, LONG), "key is <Serde STRING> and <Serde LONG>"),
    "types": (Consumed(STRING, json(str)), Consumed(STRING, json(int)), r"value is <Serde json\(str\)> and <Serde json\(int\)>"),
    "the default and another": (Consumed(), Consumed(None, LONG), "value is the app's default and <Serde LONG>"),
    "another and the default": (Consumed(None, LONG), Consumed(), "value is <Serde LONG> and the app's default"),
    "windows": (Consumed(windowed(STRING, 5)), Consumed(windowed(STRING, 6)), "key is .*5.* and .*6"),
    "functions": (Consumed(None, functions("utf-8")), Consumed(None, functions("utf-16")), "value is .*two functions> and .*two functions"),
    "a serde of one's own": (Consumed(None, Reversed("utf-8")), Consumed(None, Reversed("utf-16")), "value is .*Reversed"),
    "extractors": (
        Consumed(timestamp_extractor=by_value),
        Consumed(timestamp_extractor=WallclockTimestampExtractor()),
        "timestamp_extractor is <function by_value.* and .*Wallclock",
    ),
    "an extractor and the default": (
        Consumed(),
        Consumed(timestamp_extractor=by_value),
        "timestamp_extractor is the app's default and <function by_value",
    ),
    "offset resets": (Consumed(), Consumed(offset_reset="latest"), "offset_reset is the app's default and latest"),
}
TOPICS: dict[str, tuple[Any, str]] = {
    "topic": ("in", "topic in"),
    "topics": (["in", "more"], "topic in, more"),
    "pattern": (re.compile("i.*"), r"the pattern i\.\*"),
}


@pytest.mark.parametrize("topics", TOPICS)
@pytest.mark.parametrize("case", SAME)
def test_streams_with_the_same_options_have_one_source(case: str, topics: str) -> None:
    """Names do not matter, as in Kafka Streams: the first one's is the source's."""
    builder = StreamsBuilder()
    for consumed in SAME[case]:
        builder.stream(TOPICS[topics][0], consumed or Consumed())
    assert len(builder.build().nodes) == 1


@pytest.mark.parametrize("topics", TOPICS)
@pytest.mark.parametrize("case", DIFFERENT)
def test_streams_with_different_options_are_refused(case: str, topics: str) -> None:
    """The error names the sources, the topic, and both options."""
    first, second, message = DIFFERENT[case]
    read, shown = TOPICS[topics]
    builder = StreamsBuilder()
    for consumed in (first, second):
        builder.stream(read, consumed)
    sources = "sources KSTREAM-SOURCE-0000000000 and KSTREAM-SOURCE-0000000001"
    with pytest.raises(TopologyError, match=f"{sources} read {shown} but have different options, {message}"):
        builder.build()


def test_a_join_of_a_stream_that_is_read_twice_needs_equal_partitions() -> None:
    """The copartition group names the source that both streams have."""
    builder = StreamsBuilder()
    consumed = Consumed(STRING, STRING)
    builder.stream("in", consumed).peek(lambda key, value: None)
    builder.stream("in", consumed).join(builder.table("rows", consumed), lambda left, right: left + right).to("out")
    (subtopology,) = builder.build().subtopologies()
    assert subtopology.copartition_groups == (frozenset({"in", "rows"}),)


class Keep(Processor[Any, Any, Any, Any]):
    def process(self, record: Any) -> None:
        """Do nothing."""


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_global_tables_and_stores_take_no_offset_reset(reset: Any) -> None:
    """Each instance reads the whole topic: the option was ignored."""
    consumed = Consumed(STRING, STRING, offset_reset=reset)
    with pytest.raises(TopologyError, match="offset_reset of global_table of topic rows has no effect, because every instance reads the whole topic"):
        StreamsBuilder().global_table("rows", consumed, Materialized("store"))
    with pytest.raises(TopologyError, match="offset_reset of global store kept has no effect"):
        StreamsBuilder().add_global_store(stores.key_value("kept", STRING, STRING), "rows", Keep, consumed)
