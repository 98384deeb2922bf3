"""A topic with its types."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, NewType, TypedDict

import attrs
import msgspec
import pytest

from ks_actors import App, ConfigError, StreamsBuilder, StreamsConfig, Topic, Topology, TopologyError, serdes, stores
from ks_actors.dsl import Consumed, Grouped, Joined, Materialized, Produced, Repartitioned, StreamJoined
from ks_actors.processors import Processor
from ks_actors.testing import AppHarness, AsyncTopologyTestDriver, TestRecord, TopologyTestDriver, run_app
from ks_actors.topology import SinkNode, SourceNode


@dataclass
class Order:
    """A value of the tests."""

    number: int


@attrs.define
class Item:
    """A class of attrs."""

    name: str


class Row(TypedDict):
    """A TypedDict."""

    items: list[Item]


class Point(msgspec.Struct):
    """A Struct."""

    x: int


UserId = NewType("UserId", str)


@pytest.mark.parametrize(
    ("given", "serde"),
    [
        (str, serdes.STRING),
        (bytes, serdes.BYTES),
        (bool, serdes.BOOLEAN),
        (int, serdes.LONG),
        (float, serdes.DOUBLE),
        (uuid.UUID, serdes.UUID),
        (type(None), serdes.VOID),
        (serdes.INTEGER, serdes.INTEGER),
        (UserId, serdes.STRING),
        (Annotated[int, "a note"], serdes.LONG),
        (None, None),
    ],
)
def test_types_of_javas_serdes_stand_for_them(given: Any, serde: Any) -> None:
    """A type that Java has a serde for is that serde; a serde and None stay as they are."""
    topic = Topic("orders", given, given)
    assert topic.key is serde
    assert topic.value is serde
    assert str(topic) == topic.name == "orders"


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Order, Order(1)),
        (Item, Item("a")),
        (Row, {"items": [Item("a")]}),
        (Point, Point(1)),
        (dict[str, int], {"a": 1}),
        (list[Order], [Order(1)]),
        (int | str, "a"),
        (Any, {"a": [1, None]}),
        (Annotated[int, msgspec.Meta(gt=0)], 1),
    ],
)
def test_other_types_are_json(type_: Any, value: Any) -> None:
    """A type that msgspec knows is written and read as JSON."""
    topic = Topic("orders", str, type_)
    assert topic.value is not None
    written = topic.value.serializer("orders")(value)
    assert written == serdes.json(type_).serializer("orders")(value)
    assert topic.value.deserializer("orders")(written) == value


@pytest.mark.parametrize("given", [object, 1, "str", serdes.json])
def test_what_has_no_serde_is_refused(given: Any) -> None:
    """A value that is neither a serde nor a type that has one is refused, by its place."""
    with pytest.raises(TopologyError, match=r"value of Topic 'orders' is .* give (a type|its result for a type)"):
        Topic("orders", str, given)


def test_a_topic_checks_its_other_arguments() -> None:
    """The name, the extractor, the reset and the partitioner are checked at once."""
    wrong: list[dict[str, Any]] = [
        {"name": "a b"},
        {"timestamp_extractor": len},
        {"offset_reset": "begin"},
        {"partitioner": lambda key: 0},
    ]
    for arguments in wrong:
        with pytest.raises(TopologyError):
            Topic(**{"name": "orders", **arguments})


TEXT, ORDER = repr(serdes.STRING), repr(serdes.json(Order))
PLACES: dict[str, Callable[[Any, Any], Any]] = {
    "Consumed": Consumed,
    "Produced": Produced,
    "Grouped": Grouped,
    "Joined": Joined,
    "StreamJoined": StreamJoined,
    "Repartitioned": Repartitioned,
    "Materialized": lambda key, value: Materialized("m", key, value),
    "stores.key_value": lambda key, value: stores.key_value("s", key, value),
    "stores.window": lambda key, value: stores.window("s", key, value, retention_ms=5, window_size_ms=5),
    "stores.session": lambda key, value: stores.session("s", key, value, retention_ms=5),
    "stores.versioned_key_value": lambda key, value: stores.versioned_key_value("s", key, value, history_retention_ms=5),
    "add_source": lambda key, value: Topology().add_source("s", "in", key=key, value=value).nodes["s"],
    "add_sink": lambda key, value: Topology().add_source("a", "in").add_sink("s", "out", "a", key=key, value=value).nodes["s"],
    "config": lambda key, value: Defaults(StreamsConfig(application_id="a", default_key_serde=key, default_value_serde=value)),
}


class Defaults:
    """The default serdes of a config."""

    def __init__(self, config: StreamsConfig) -> None:
        self.key, self.value = config.default_key_serde, config.default_value_serde


@pytest.mark.parametrize("place", PLACES)
def test_a_type_stands_wherever_a_serde_may(place: str) -> None:
    """The place has the type's serde; a class without one is refused by the place, with what to write."""
    made = PLACES[place](str, Order)
    assert (repr(made.key), repr(made.value)) == (TEXT, ORDER)
    with pytest.raises((TopologyError, ConfigError), match=r"object.*(make it a dataclass|is neither a serde nor a type)"):
        PLACES[place](str, object)


def test_wrapped_and_other_serdes_are_types_too() -> None:
    """`list_of`, `windowed`, `session_windowed`, the serde of `distinct`, and the third one of joins."""
    assert repr(serdes.list_of(int)) == repr(serdes.list_of(serdes.LONG))
    assert repr(serdes.windowed(str, 5)) == repr(serdes.windowed(serdes.STRING, 5))
    assert repr(serdes.session_windowed(str)) == repr(serdes.session_windowed(serdes.STRING))
    assert Joined(other_value=int).other_value is serdes.LONG
    stream = StreamsBuilder().stream(ORDERS)
    assert stream.distinct(5, by=lambda order: order.number, by_serde=int, key=str).key is serdes.STRING
    assert stream.select_key(lambda *_: "a").expire(5, key=str).key is serdes.STRING


def test_a_type_can_be_named_in_a_file() -> None:
    """A setting may be the dotted name of a type, as of a serde."""
    config = StreamsConfig.of({"application_id": "a", "default_value_serde": f"{__name__}.Order"})
    assert repr(config.default_value_serde) == ORDER


def time_of(*_: Any) -> int:
    """Return the time of all records."""
    return 7


def fourth(*_: Any) -> int:
    """Return the partition of all records."""
    return 3


ORDERS = Topic("orders", str, Order, timestamp_extractor=time_of, offset_reset=timedelta(hours=1), partitioner=fourth)
COPIES = Topic("copies", str, Order, timestamp_extractor=time_of, offset_reset=timedelta(hours=1))
KEYS = Topic("keys", str)


class Nothing(Processor[Any, Any, Any, Any]):
    """Do nothing."""

    def process(self, record: Any) -> None: ...


def source(build: Callable[[StreamsBuilder], Any], name: str = "KSTREAM-SOURCE-0000000000") -> SourceNode:
    """Return the source that a program has."""
    builder = StreamsBuilder()
    build(builder)
    node = next(each for each in builder.build().nodes.values() if isinstance(each, SourceNode))
    assert name in (node.name, "")
    return node


def test_a_topic_brings_the_options_for_reading_it() -> None:
    """In a stream, a table, a source, and of several topics; a global table has no reset."""
    for build in (
        lambda b: b.stream(ORDERS),
        lambda b: b.stream([ORDERS, COPIES]),
        lambda b: b.stream((ORDERS, "others")),
        lambda b: b.table(ORDERS),
    ):
        node = source(build, "")
        assert (repr(node.key), repr(node.value)) == (TEXT, ORDER)
        assert (node.timestamp_extractor, node.offset_reset) == (time_of, timedelta(hours=1))
    by_hand = Topology().add_source("s", [ORDERS]).nodes["s"]
    assert isinstance(by_hand, SourceNode)
    assert (by_hand.topics, repr(by_hand.value), by_hand.offset_reset) == (("orders",), ORDER, timedelta(hours=1))
    node = source(lambda b: b.global_table(ORDERS), "")
    assert (node.topics, repr(node.value), node.timestamp_extractor, node.offset_reset) == (("orders",), ORDER, time_of, None)
    spec = stores.key_value("s", str, Order)
    node = source(lambda b: b.add_global_store(spec, ORDERS, Nothing), "")
    assert (node.topics, repr(node.value)) == (("orders",), ORDER)
    assert Topology().add_global_store(spec, "a", ORDERS, "b", Nothing).global_topics["orders"].store == "s"


def test_options_beside_a_topic_come_first() -> None:
    """Each option by itself: the others remain the topic's."""
    node = source(lambda b: b.stream(ORDERS, Consumed(value=serdes.json(), offset_reset="latest", name="reads")), "reads")
    assert (repr(node.key), repr(node.value), node.offset_reset) == (TEXT, repr(serdes.json()), "latest")
    assert node.timestamp_extractor is time_of
    b = StreamsBuilder()
    other_keys: Any = serdes.BYTES
    b.stream(ORDERS).to(ORDERS, Produced(key=other_keys, name="out"))
    b.stream(ORDERS).map_values(lambda order: order.number).to(Topic("numbers", value=int))
    nodes: Any = b.build().nodes
    assert (nodes["out"].topic, nodes["out"].partitioner) == ("orders", fourth)
    assert (repr(nodes["out"].key), repr(nodes["out"].value)) == (repr(serdes.BYTES), ORDER)
    numbers = next(each for each in nodes.values() if isinstance(each, SinkNode) and each.topic == "numbers")
    assert (repr(numbers.key), numbers.value) == (TEXT, serdes.LONG)
    sink: Any = Topology().add_source("a", "in").add_sink("s", ORDERS, "a", value=int).nodes["s"]
    assert (sink.topic, repr(sink.key), sink.value, sink.partitioner) == ("orders", TEXT, serdes.LONG, fourth)


def test_topics_that_differ_cannot_be_read_together() -> None:
    """One source has one serde: the error says to merge streams."""
    with pytest.raises(TopologyError, match="stream reads topics orders, keys, and their value differs: read them one by one"):
        StreamsBuilder().stream([ORDERS, KEYS])
    StreamsBuilder().stream([ORDERS, KEYS], Consumed(str, Order, timestamp_extractor=time_of, offset_reset="latest"))


@pytest.mark.parametrize(
    "use",
    [
        lambda b, topic: b.stream(ORDERS).to(topic),
        lambda b, topic: (b.table(ORDERS), b.stream("in").to(topic)),
        lambda b, topic: (b.stream("in").to(ORDERS), b.stream("too").to(topic)),
        lambda b, topic: (b.stream("in").to(ORDERS), b.global_table(topic)),
    ],
)
def test_two_topics_of_one_name_have_equal_serdes(use: Callable[[StreamsBuilder, Any], Any]) -> None:
    """Else one would write what the other cannot read: an error at the build."""
    for other, role in ((Topic("orders", str, int), "value"), (Topic("orders", bytes, Order), "key"), (Topic("orders", str), "value")):
        b = StreamsBuilder()
        use(b, other)
        with pytest.raises(TopologyError, match=rf"two Topics 'orders' have different serdes: their {role} is"):
            b.build()
    b = StreamsBuilder()
    use(b, Topic("orders", str, Order))
    b.build()


def test_classes_of_one_name_are_two_types() -> None:
    """Their serdes look alike, and are not the same."""

    @dataclass
    class Order:
        text: str

    b = StreamsBuilder()
    b.stream(ORDERS).map_values(lambda order: Order(str(order.number))).to(Topic("orders", str, Order))
    with pytest.raises(TopologyError, match="two Topics 'orders' have different serdes"):
        b.build()


def pass_on() -> Topology:
    """Return the program of the tests of drivers."""
    b = StreamsBuilder()
    b.stream(Topic("in", str, Order)).map_values(lambda order: order.number).to(Topic("out", str, int))
    return b.build()


def test_drivers_take_topics_types_and_names() -> None:
    """A name alone has the topology's serdes; an unknown one is asked for."""
    for place in (Topic("in", str, Order), "in"):
        with TopologyTestDriver(pass_on()) as driver:
            driver.create_input_topic(place).pipe_input("k", Order(1))
            out: Any = driver.create_output_topic("out", str, int) if place == "in" else driver.create_output_topic(Topic("out"))
            assert out.read_key_values_to_list() == [("k", 1)]
            assert out.name == "out"
            with pytest.raises(TopologyError, match=re.escape("the key serde of topic 'else' is unknown")):
                driver.create_output_topic("else")
            with pytest.raises(TopologyError, match="key of topic 'in' is"):
                driver.create_input_topic("in", object, str)


async def test_asynchronous_drivers_take_topics() -> None:
    """As the others do."""
    async with AsyncTopologyTestDriver(pass_on()) as driver:
        await driver.create_input_topic(Topic("in", str, Order)).pipe_input("k", Order(1))
        assert driver.create_output_topic("out").read_value() == 1


def test_an_app_and_its_harness_take_topics() -> None:
    """Where they are created, written, read, grown and deleted."""
    orders, numbers, more = Topic("in", str, Order), Topic("out", str, int), Topic("more", str, list[Order])

    async def run(app: AppHarness) -> None:
        await app.produce(orders, "k", Order(1))
        await app.produce_all(orders, [TestRecord("k", Order(2), 0)])
        await app.caught_up()
        assert [record.value for record in await app.read(numbers)] == [1, 2]
        assert [record.value for record in await app.read(numbers, value=bytes)] == [number.to_bytes(8) for number in (1, 2)]
        app.create_topics({more: 1})
        await app.produce(more, "k", [Order(1)])
        assert [record.value for record in await app.read(more)] == [[Order(1)]]
        app.create_partitions({more: 2})
        app.delete_topics(more)

    run_app(run, pass_on(), topics={orders: 1, numbers: 1})
    app = App(pass_on(), StreamsConfig(application_id="a"), topics={orders: 4, "out": 2})
    assert app._topics == {"in": 4, "out": 2}
