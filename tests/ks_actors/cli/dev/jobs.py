"""Apps for the tests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from ks_actors import App, Consumed, Grouped, Materialized, Produced, StreamsBuilder, StreamsConfig, TimeWindows, Topology
from ks_actors.serdes import DOUBLE, LONG, STRING, json, windowed


@dataclass(frozen=True)
class Order:
    """An order, whose key is the customer."""

    amount: float
    item: str = ""


ORDER = json(Order)


def orders() -> Topology:
    """Add up the orders of each customer; orders without an amount fail."""

    def paid(order: Order) -> float:
        return order.amount * (order.amount / order.amount)

    builder = StreamsBuilder()
    stream = builder.stream("orders", Consumed(STRING, ORDER))
    amounts = stream.map_values(paid)
    totals = amounts.group_by_key(Grouped(STRING, DOUBLE)).reduce(lambda total, amount: total + amount, Materialized("totals", STRING, DOUBLE))
    totals.to_stream().to("totals", Produced(STRING, DOUBLE))
    stream.filter(lambda _, order: order.amount > 100).to("large", Produced(STRING, ORDER))
    return builder.build()


def visits(config: StreamsConfig) -> App:
    """Count visits by hour."""
    builder = StreamsBuilder()
    counts = builder.stream("visits", Consumed(STRING, STRING)).group_by_key(Grouped(STRING, STRING))
    hourly = counts.windowed_by(TimeWindows.of_size_with_no_grace(3_600_000)).count()
    hourly.to_stream().to("hourly", Produced(windowed(STRING, 3_600_000), LONG))
    return App(builder.build(), config, topics={"visits": 3})


def by_pattern() -> Topology:
    """Copy all topics of clicks."""
    builder = StreamsBuilder()
    builder.stream(re.compile("clicks-.*"), Consumed(STRING, STRING)).to("all", Produced(STRING, STRING))
    return builder.build()


def names() -> Topology:
    """A table of names, whose rows go out."""
    builder = StreamsBuilder()
    builder.table("names", Consumed(STRING, STRING)).to_stream().to("out", Produced(STRING, STRING))
    return builder.build()


def broken() -> NoReturn:
    """Fail as the user's own code may."""
    raise LookupError("no such thing")
