"""Serdes that follow from the annotations of functions."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, NewType, TypedDict, TypeVar

import pytest

from ks_actors import App, Materialized, StreamsBuilder, StreamsConfig, TimeWindows, Topic, TopologyError, serdes
from ks_actors.dsl import Consumed, Grouped, Joined, JoinWindows, Produced, Stream, StreamJoined, TableJoined
from ks_actors.dsl._infer import item_of, pair_of, pairs_of, value_of
from ks_actors.processors import FixedKeyProcessor, FixedKeyRecord, Processor, Record, ValueTransformer
from ks_actors.testing import TopologyTestDriver

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]

T = TypeVar("T")
UserId = NewType("UserId", str)


@dataclass(frozen=True)
class Order:
    """A value of the tests."""

    customer: str
    amount: int


class Total(TypedDict):
    """An aggregate of the tests."""

    amount: int


class NoForm:
    """A class without a serde."""


class Ranked(Generic[T]):
    """A generic class without a serde."""


class Callee:
    """An object that can be called, with a method and others."""

    def __call__(self, value: Any) -> int:
        return 1

    def method(self, value: Any) -> Order:
        return Order("a", 1)

    @classmethod
    def of_class(cls, value: Any) -> Total:
        return {"amount": 1}

    @staticmethod
    def static(value: Any) -> str:
        return ""


def order_of(text: str) -> Order:
    customer, _, amount = text.partition(" ")
    return Order(customer, int(amount))


async def order_later(text: str) -> Order:
    return order_of(text)


def promised(text: str) -> Awaitable[Order | None]:
    return order_later(text)


def maybe(value: Any) -> Order | None:
    return None


def checked_only(value: Unknown) -> Order:
    return Order("a", 1)


def gives_unknown(value: Any) -> Unknown:
    return value


def any_of(value: Any) -> Any:
    return value


def object_of(value: Any) -> object:
    return value


def variable(value: T) -> T:
    return value


def generic(value: T) -> list[T]:
    return [value]


def nothing(value: Any) -> None: ...
def formless(value: Any) -> NoForm:
    return NoForm()


def bare(value: Any):  # type: ignore[no-untyped-def]  # noqa: ANN201 - that is the case
    return value


def user_id(value: Any) -> UserId:
    return UserId("")


def with_note(value: Any) -> Annotated[str, "a note"]:
    return ""


def either(value: Any) -> int | str:
    return 1


def windowed(value: Any) -> Stream[str, str]:
    raise NotImplementedError


@functools.cache
def cached(value: str) -> int:
    return 1


def wrapping(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return call


ORDER = serdes.json(Order)


@pytest.mark.parametrize(
    ("function", "serde"),
    [
        (order_of, ORDER),
        (order_later, ORDER),
        (promised, ORDER),
        (maybe, ORDER),
        (checked_only, ORDER),
        (Order, ORDER),
        (str, serdes.STRING),
        (int, serdes.LONG),
        (len, serdes.LONG),
        (str.upper, serdes.STRING),
        (str.encode, serdes.BYTES),
        (str.split, serdes.json(list[str])),
        (list[str], serdes.json(list[str])),
        (functools.partial(functools.partial(order_of), "a 1"), ORDER),
        (Callee(), serdes.LONG),
        (Callee().method, ORDER),
        (Callee.of_class, serdes.json(Total)),
        (Callee.static, serdes.STRING),
        (wrapping(order_of), ORDER),
        (cached, serdes.LONG),
        (user_id, serdes.STRING),
        (with_note, serdes.STRING),
        (either, serdes.json(int | str)),
        *[
            (unknown, None)
            for unknown in (gives_unknown, any_of, object_of, variable, generic, nothing, formless, bare, windowed, list, dict, print, max, NoForm)
        ],
        (lambda value: value, None),
    ],
    ids=repr,
)
def test_a_result_has_the_serde_of_its_annotation(function: Any, serde: Any) -> None:
    """None in a union is a delete; what cannot be evaluated, or has no serde, says nothing, and is no error."""
    assert repr(value_of(function)) == repr(serde)


def texts(_: Any, __: Any) -> tuple[str, Order]:
    return "", Order("a", 1)


async def texts_later(_: Any, __: Any) -> tuple[str, Order]:
    return "", Order("a", 1)


def many(_: Any, __: Any) -> Iterator[tuple[str, int]]:
    yield "", 1


def endless(_: Any, __: Any) -> tuple[str, ...]:
    return ()


def words(value: str) -> Iterable[str]:
    return value.split()


def letters(value: str) -> tuple[str, ...]:
    return tuple(value)


def counts(value: str) -> dict[str, int]:
    return {}


def test_pairs_and_items_have_the_serdes_of_their_parts() -> None:
    """A pair is a tuple of two types; items are those of any iterable but a mapping."""
    pair = (repr(serdes.STRING), repr(ORDER))
    assert tuple(map(repr, pair_of(texts))) == tuple(map(repr, pair_of(texts_later))) == pair
    assert tuple(map(repr, pairs_of(many))) == (repr(serdes.STRING), repr(serdes.LONG))
    assert pair_of(endless) == pair_of(order_of) == pairs_of(texts) == (None, None)
    functions: list[Any] = [words, letters, str.split, str.splitlines]
    for function in functions:
        assert repr(item_of(function)) == repr(serdes.STRING)
    others: list[Any] = [counts, texts, order_of, len]
    for function in others:
        assert item_of(function) is None


class Rekeyed(Processor[str, str, int, Order]):
    """A processor that forwards other types."""

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_key(1).with_value(order_of(record.value)))


class Revalued(FixedKeyProcessor[str, str, Order]):
    """A processor that forwards other values."""

    async def process(self, record: FixedKeyRecord[str, str]) -> None:
        self.context.forward(record.with_value(order_of(record.value)))


class Transformed(ValueTransformer[str, str, int]):
    """A transformer of a table's values."""

    def transform(self, key: str, value: str | None) -> int:
        return len(value or "")


def amount(_: Any, order: Order, total: Total) -> Total:
    return {"amount": total["amount"] + order.amount}


def less(_: Any, order: Order, total: Total) -> Total:
    return {"amount": total["amount"] - order.amount}


def unchanged(_: Any, __: Any, total: Any) -> Any:
    return total


def first(one: Any, _: Any) -> Order:
    return order_of(str(one))


def customer(_: Any, order: Order) -> str:
    return order.customer


def size(_: Any, text: str | None) -> int:
    return len(text or "")


def sized(key: str, text: str) -> tuple[int, Order]:
    return len(text), Order(key, 1)


async def records_later(records: list[Record[str, str]]) -> list[Record[int, Order]]:
    return []


def no_total() -> Total:
    return {"amount": 0}


TEXT: Topic[str, str] = Topic("in", str, str)
OTHER: Topic[str, str] = Topic("other", str, str)
TEN = TimeWindows.of_size_with_no_grace(10)
NEAR = JoinWindows.of_time_difference_with_no_grace(5)
OPERATIONS: dict[str, tuple[Callable[[StreamsBuilder], Any], tuple[Any, Any]]] = {
    "map_values": (lambda b: b.stream(TEXT).map_values(order_of), (str, Order)),
    "async map_values": (lambda b: b.stream(TEXT).map_values(order_later), (str, Order)),
    "map": (lambda b: b.stream(TEXT).map(texts), (str, Order)),
    "flat_map": (lambda b: b.stream(TEXT).flat_map(many), (str, int)),
    "flat_map_values": (lambda b: b.stream(TEXT).flat_map_values(str.split), (str, str)),
    "select_key": (lambda b: b.stream(TEXT).select_key(size), (int, str)),
    "process": (lambda b: b.stream(TEXT).process(Rekeyed), (int, Order)),
    "process_values": (lambda b: b.stream(TEXT).process_values(lambda: Revalued()), (str, Order)),
    "batch": (lambda b: b.stream(TEXT).batch(records_later), (int, Order)),
    "merge": (lambda b: b.stream(TEXT).merge(b.stream(OTHER)), (str, str)),
    "merge of an inferred and a known one": (lambda b: b.stream(TEXT).map_values(str.upper).merge(b.stream(OTHER)), (str, str)),
    "group_by": (lambda b: b.stream(TEXT).map_values(order_of).group_by(customer).count(), (str, int)),
    "named group_by": (lambda b: b.stream(TEXT).group_by(size, Grouped(name="g")).reduce(lambda a, _: a), (int, str)),
    "named group_by_key": (lambda b: b.stream(TEXT).group_by_key(Grouped(name="g")).reduce(lambda a, _: a), (str, str)),
    "aggregate": (
        lambda b: b.stream(TEXT).map_values(order_of).group_by(customer).aggregate(lambda: {"amount": 0}, amount),
        (str, Total),
    ),
    "initializer": (lambda b: b.stream(TEXT).group_by_key().aggregate(int, lambda _, __, a: a + 1), (str, int)),
    "reduce": (lambda b: b.stream(Topic("any", str)).group_by_key().reduce(first), (str, None)),
    "cogroup": (lambda b: b.stream(TEXT).group_by_key().cogroup(unchanged).aggregate(no_total), (str, Total)),
    "joined table": (lambda b: b.stream(TEXT).join(b.table(OTHER), first), (str, Order)),
    "joined global table": (lambda b: b.stream(TEXT).join(b.global_table(OTHER), lambda key, _: key, first), (str, Order)),
    "joined streams": (lambda b: b.stream(TEXT).join(b.stream(OTHER), first, NEAR), (str, Order)),
    "as of": (lambda b: b.stream(TEXT).join_asof(b.stream(OTHER), first, 5), (str, Order)),
    "tables": (lambda b: b.table(TEXT).join(b.table(OTHER), first), (str, Order)),
    "stored tables": (lambda b: b.table(TEXT).join(b.table(OTHER), first, Materialized("j")), (str, Order)),
    "foreign key": (lambda b: b.table(TEXT).join(b.table(OTHER), first, foreign_key=str.upper, joined=TableJoined("j")), (str, Order)),
    "values of a table": (lambda b: b.table(TEXT).map_values(order_of, Materialized("m")), (str, Order)),
    "transformed values": (lambda b: b.table(TEXT).transform_values(Transformed, materialized=Materialized("m")), (str, int)),
    "grouped table": (lambda b: b.table(TEXT).group_by(sized).aggregate(no_total, amount, less), (int, Total)),
    "reduced table": (lambda b: b.table(TEXT).group_by(sized).reduce(lambda a, _: a, lambda a, _: a), (int, Order)),
    "to_stream": (lambda b: b.table(TEXT).to_stream(size), (int, str)),
    "windows": (lambda b: b.stream(TEXT).select_key(size).group_by_key().windowed_by(TEN).count(), (None, int)),
}


def built(make: Callable[[StreamsBuilder], Any]) -> Any:
    """Return the builder and the stream of an operation's results, written to a topic."""
    builder = StreamsBuilder()
    made = make(builder)
    stream = made if isinstance(made, Stream) else made.to_stream()
    stream.to("out")
    return builder, stream


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_passes_the_serdes_of_its_function_on(name: str) -> None:
    """Nothing else names a serde, and the app is complete; a topic, a store and a repartition have them too."""
    make, (key, value) = OPERATIONS[name]
    builder, stream = built(make)
    if key is not None:
        assert repr(stream.key) == repr(serdes.serde_of(key, role="key", of="test"))
    if value is not None:
        assert repr(stream.value) == repr(serdes.serde_of(value, role="value", of="test"))
    if name != "reduce":  # whose input has no serde of values
        App(builder.build(), StreamsConfig(application_id="app"))


@pytest.mark.parametrize("name", OPERATIONS)
def test_default_serdes_come_before_inferred_ones(name: str) -> None:
    """An annotation changes no byte of an app that has default serdes: each node, topic and store has them as without it."""
    make, _ = OPERATIONS[name]
    topology = built(make)[0].build(StreamsConfig(application_id="app", default_key_serde=serdes.VOID, default_value_serde=serdes.VOID))
    known = {repr(serde) for serde in (serdes.STRING, serdes.LONG, serdes.VOID, serdes.BYTES)}
    with TopologyTestDriver(topology, {"default_key_serde": serdes.VOID, "default_value_serde": serdes.VOID}) as driver:
        parts = driver._parts
        found: list[Any] = [*topology.nodes.values(), *topology.stores.values()]
        for each in found:
            if hasattr(each, "key"):
                key, value = parts.serdes.pair(each.key, each.value, of=name)
                assert repr(ORDER) not in repr(key) + repr(value)
                assert "json" not in repr(key) + repr(value)
                assert {repr(key), repr(value)} & known or "(" in repr(key) + repr(value)


def test_what_is_told_comes_before_what_is_inferred() -> None:
    """So a format can be chosen: JSON for an int, say; and a known serde upstream stays."""
    b = StreamsBuilder()
    numbers = b.stream(TEXT).map_values(len)
    numbers.to("out", Produced(value=serdes.json(int)))
    numbers.group_by(lambda *_: "k", Grouped(str, serdes.INTEGER)).reduce(lambda a, v: a + v).to_stream().to("sums")
    with TopologyTestDriver(b.build()) as driver:
        driver.create_input_topic(TEXT).pipe_input("k", "four")
        assert driver.take("out") == (b"k", b"4", 0, ())
        assert driver.take("sums") == (b"k", b"\0\0\0\4", 0, ())


def test_a_program_names_its_types_once() -> None:
    """Topics and annotations are enough for a program with joins, groups and stores."""
    totals: Topic[str, Total] = Topic("totals", str, Total)
    b = StreamsBuilder()
    table = b.stream(TEXT).map_values(order_of).group_by(customer).aggregate(no_total, amount, Materialized("totals"))
    table.to_stream().to(totals)
    with TopologyTestDriver(b.build()) as driver:
        lines, out = driver.create_input_topic(TEXT), driver.create_output_topic(totals)
        lines.pipe_key_value_list([("a", "ann 1"), ("b", "bob 2"), ("c", "ann 3")])
        assert out.read_key_values_to_list() == [("ann", {"amount": 1}), ("bob", {"amount": 2}), ("ann", {"amount": 4})]
        assert driver.get_key_value_store("totals").get("ann") == {"amount": 4}


def test_a_join_by_a_foreign_key_writes_inferred_values() -> None:
    """Its subscriptions and responses are written by the serdes that follow from annotations."""
    b = StreamsBuilder()
    left = b.table(TEXT).map_values(order_of)
    right = b.table(OTHER).map_values(len)
    joined = left.join(right, added, foreign_key=lambda order: order.customer, joined=TableJoined("j"))
    joined.to_stream().to("out")
    with TopologyTestDriver(b.build()) as driver:
        driver.create_input_topic(OTHER).pipe_input("ann", "four")
        driver.create_input_topic(TEXT).pipe_input("k", "ann 3")
        assert driver.create_output_topic("out").read_key_values_to_list() == [("k", Order("ann", 7))]


def added(order: Order, more: int) -> Order:
    return Order(order.customer, order.amount + more)


def test_keys_of_a_join_are_written_as_those_of_the_other_side() -> None:
    """A known serde of the other side comes before an inferred one: equal keys must be in the same partitions."""
    quoted: Any = serdes.json(str)
    b = StreamsBuilder()
    rekeyed = b.stream(TEXT).select_key(lambda_free_key)
    rekeyed.join(b.table("rows", Consumed(quoted, str)), first, Joined(name="t")).to("one")
    rekeyed.join(b.stream("more", Consumed(quoted, str)), first, NEAR, StreamJoined(name="s")).to("two")
    nodes: Any = b.build().nodes
    for sink in ("t-repartition-sink", "s-left-repartition-sink"):
        assert repr(nodes[sink].key) == repr(quoted)
    assert repr(nodes["t-repartition-sink"].value) == repr(serdes.STRING)


def lambda_free_key(key: str, _: str) -> str:
    return key


def test_topologies_with_a_default_serde_are_optimized_as_before() -> None:
    """An inferred serde moves a repartition topic only if it is the serde that is used."""

    def repartitions(**defaults: Any) -> list[str]:
        b = StreamsBuilder()
        joined = b.stream(TEXT).select_key(size).join(b.global_table(OTHER), lambda key, _: str(key), annotated)
        joined.group_by_key(Grouped(name="g")).count(Materialized("a")).to_stream().to("out", Produced(int, int))
        topology = b.build(StreamsConfig(application_id="app", topology_optimization="all", **defaults))
        return [part.nodes[0] for part in topology.subtopologies() for _ in [0] if part.nodes] + list(topology.nodes)

    def annotated(one: str, _: str) -> Order:
        return order_of(one)

    with_default = repartitions(default_key_serde=int, default_value_serde=serdes.json())
    annotated.__annotations__.clear()
    assert repartitions(default_key_serde=int, default_value_serde=serdes.json()) == with_default


def test_an_unknown_type_is_asked_for_by_its_place() -> None:
    """The error names the node, the line of code and what to write."""
    b = StreamsBuilder()
    b.stream(TEXT).map_values(lambda text: text).to("out")
    b.stream("raw").foreach(lambda *_: None)
    b.stream(TEXT).group_by_key().aggregate(lambda: 0, lambda _, __, a: a, Materialized("sums"))
    with pytest.raises(TopologyError) as missing:
        b.build(StreamsConfig(application_id="app"))
    told = str(missing.value)
    line = test_an_unknown_type_is_asked_for_by_its_place.__code__.co_firstlineno
    place = f"at test_inferred.py:{line + 3}"
    assert f"value of sink KSTREAM-SINK-0000000002, which writes to out, {place}, made by map_values {place}: write Produced(value=Order)" in told
    assert f"which reads raw, at test_inferred.py:{line + 4}: write Consumed(str, Order)" in told
    assert f'at test_inferred.py:{line + 5}: write Materialized("name", value=Order)' in told
    assert "or annotate the functions" in told
