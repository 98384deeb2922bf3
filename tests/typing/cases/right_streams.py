"""Code of streams that type checkers accept, with the types they infer from topics and types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

from ks_actors import App, Consumed, GlobalTable, Grouped, Joined, Materialized, Produced, Repartitioned, Stream, StreamJoined, StreamsBuilder, StreamsConfig, Table, Topic, Windowed, serdes, stores
from ks_actors.serdes import Serde
from ks_actors.testing import AppHarness, TestInputTopic, TestOutputTopic, TopologyTestDriver


@dataclass
class Order:
    customer: str
    amount: int


class Row(TypedDict):
    amount: int


ORDERS = Topic("orders", str, Order)
TOTALS = Topic("totals", serdes.STRING, int)


def parse(line: str) -> Order:
    return Order(line, 1)


async def parse_later(line: str) -> Order:
    return Order(line, 1)


def options() -> None:
    assert_type(ORDERS, Topic[str, Order])
    assert_type(ORDERS.value, Serde[Order] | None)
    assert_type(Topic("a", value=str), Topic[Any, str])
    assert_type(Topic("a", None, str), Topic[Any, str])
    assert_type(Topic("a", str), Topic[str, Any])
    assert_type(Topic("a"), Topic[Any, Any])
    assert_type(Topic("a", str, list[Order]), Topic[str, list[Order]])
    assert_type(Consumed(str, Order), Consumed[str, Order])
    assert_type(Consumed(str, Order).value, Serde[Order] | None)
    assert_type(Consumed(str, dict[str, int]), Consumed[str, dict[str, int]])
    assert_type(Produced(str, Row), Produced[str, Row])
    assert_type(Grouped(bytes, float), Grouped[bytes, float])
    assert_type(Joined(str, Order, int), Joined[str, Order, int])
    assert_type(StreamJoined(str, Order, int), StreamJoined[str, Order, int])
    assert_type(Repartitioned(str, Order), Repartitioned[str, Order])
    assert_type(Materialized("m", str, Order), Materialized[str, Order])
    assert_type(serdes.list_of(Order), Serde[list[Order]])
    assert_type(serdes.windowed(str, 5), Serde[Windowed[str]])
    stores.key_value("s", str, Order)
    StreamsConfig(application_id="a", default_key_serde=str, default_value_serde=Order)


def operations(builder: StreamsBuilder) -> None:
    assert_type(builder.stream(ORDERS), Stream[str, Order])
    assert_type(builder.stream([ORDERS, ORDERS]), Stream[str, Order])
    assert_type(builder.stream(ORDERS, Consumed(name="reads")), Stream[str, Order])
    assert_type(builder.stream(ORDERS, Consumed(bytes, int)), Stream[bytes, int])
    assert_type(builder.stream("a", Consumed(str, Order)), Stream[str, Order])
    assert_type(builder.table(ORDERS), Table[str, Order])
    assert_type(builder.table(ORDERS, None, Materialized("m")), Table[str, Order])
    assert_type(builder.global_table(ORDERS), GlobalTable[str, Order])
    lines = builder.stream(Topic("lines", str, str))
    assert_type(lines.map_values(parse), Stream[str, Order])
    assert_type(lines.map_values(parse_later), Stream[str, Order])
    lines.map_values(parse).to(ORDERS)
    counts = lines.group_by(lambda _, line: line).count(Materialized("counts", str, int))
    counts.to_stream().to(TOTALS)
    builder.table(TOTALS).to_stream().to(TOTALS)
    lines.map_values(len).to(TOTALS, Produced(partitioner=lambda *_: 0))


async def tests(driver: TopologyTestDriver, app: App, harness: AppHarness) -> None:
    assert_type(driver.create_input_topic(ORDERS), TestInputTopic[str, Order])
    assert_type(driver.create_output_topic(TOTALS), TestOutputTopic[str, int])
    assert_type(driver.create_output_topic("a", str, Order), TestOutputTopic[str, Order])
    assert_type(driver.create_output_topic("a"), TestOutputTopic[Any, Any])
    assert_type(await app.store("a", str, Order).get("k"), Order | None)
    harness.create_topics({ORDERS: 1, TOTALS: 1})
    await harness.read(TOTALS)
