"""Code of streams that must not pass: types follow topics and annotations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from ks_actors import App, Consumed, Grouped, Materialized, Produced, Stream, StreamsBuilder, Topic, serdes
from ks_actors.testing import TopologyTestDriver


@dataclass
class Order:
    customer: str
    amount: int


ORDERS = Topic("orders", str, Order)
TOTALS = Topic("totals", str, int)
LINES = Topic("lines", value=str)


def parse(line: str) -> Order:
    customer, _, amount = line.partition(" ")
    return Order(customer, int(amount))


def customer(key: str, order: Order) -> str:
    return order.customer


def wants_int(number: int) -> int:
    return number


def of_topics(builder: StreamsBuilder) -> None:
    orders = builder.stream(ORDERS)
    orders.map_values(lambda order: order.total)  # error: attr-defined
    orders.map_values(wants_int)  # error: arg-type
    orders.to(TOTALS)  # error: arg-type
    orders.map_values(lambda order: order.amount).to(ORDERS)  # error: arg-type
    orders.to(ORDERS, Produced(value=int))  # error: arg-type
    builder.table(TOTALS).filter(lambda key, total: total.missing)  # error: attr-defined
    builder.stream([ORDERS]).group_by_key(Grouped(str, int))  # error: arg-type
    builder.stream(LINES).map_values(wants_int)  # error: arg-type
    builder.stream(ORDERS, Consumed(str, int)).map_values(parse)  # error: arg-type


def of_types(builder: StreamsBuilder) -> None:
    lines = builder.stream("lines", Consumed(str, str))
    assert_type(lines, Stream[str, str])
    parsed = lines.map_values(parse)
    parsed.map_values(wants_int)  # error: arg-type
    counts = parsed.group_by(customer).count(Materialized("counts", str, str))  # error: arg-type
    counts.to_stream().to(ORDERS)  # error: arg-type
    Topic("wrong", "str", int)  # error: arg-type
    Consumed(serdes.json)  # error: arg-type


async def of_queries(app: App, driver: TopologyTestDriver) -> None:
    wants_int(await app.store("orders", str, Order).get("k"))  # error: arg-type
    driver.create_input_topic(ORDERS).pipe_input("k", 1)  # error: arg-type
    driver.create_output_topic(TOTALS).read_value().lower()  # error: union-attr
    driver.create_output_topic("totals", str, int).read_value().lower()  # error: union-attr
