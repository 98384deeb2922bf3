"""Topologies that the tests of the command line run."""

from __future__ import annotations

import re

from ks_actors import App, Consumed, Grouped, Joined, Materialized, Produced, Repartitioned, StreamsBuilder, StreamsConfig, Topology
from ks_actors.serdes import LONG, STRING


def shop() -> Topology:
    """Count orders by customer."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", Consumed(STRING, STRING))
    counts = orders.group_by(lambda _, value: value).count(Materialized("counts", STRING, LONG))
    counts.to_stream().to("totals", Produced(STRING, LONG))
    return builder.build()


def renamed() -> Topology:
    """Count them in a store of another name."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", Consumed(STRING, STRING))
    counts = orders.group_by(lambda _, value: value).count(Materialized("sums", STRING, LONG))
    counts.to_stream().to("totals", Produced(STRING, LONG))
    return builder.build()


def numbers() -> Topology:
    """Write texts as numbers, where they are."""
    builder = StreamsBuilder()
    texts = builder.stream("texts", Consumed(STRING, STRING))
    texts.map_values(int).to("numbers", Produced(STRING, LONG))
    return builder.build()


def by_pattern() -> Topology:
    """Write the orders of all places into one topic."""
    builder = StreamsBuilder()
    builder.stream(re.compile("orders-.*"), Consumed(STRING, STRING)).to("totals", Produced(STRING, STRING))
    return builder.build()


def joined() -> Topology:
    """Join orders with a table of customers."""
    builder = StreamsBuilder()
    customers = builder.table("customers", Consumed(STRING, STRING), Materialized("customers"))
    orders = builder.stream("orders", Consumed(STRING, STRING))
    orders.join(customers, lambda one, other: one + other, Joined(STRING, STRING, STRING)).to("totals", Produced(STRING, STRING))
    return builder.build()


def counts(name: str, configs: dict[str, str] | None = None) -> Topology:
    """Count orders by key, in a store of this name."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", Consumed(STRING, STRING)).group_by_key(Grouped(STRING, STRING))
    orders.count(Materialized(name, STRING, LONG, changelog_configs=configs or {}))
    return builder.build()


def long_name() -> Topology:
    """Count into a store whose changelog would have too long a name."""
    return counts("c" * 245)


def unknown_config() -> Topology:
    """Count into a store whose changelog has a config that Kafka does not know."""
    return counts("counts", {"retention": "5"})


def alike() -> Topology:
    """Count into two stores whose changelogs have names that Kafka's metrics cannot tell apart."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", Consumed(STRING, STRING)).group_by_key(Grouped(STRING, STRING))
    orders.count(Materialized("a.b", STRING, LONG))
    orders.count(Materialized("a_b", STRING, LONG))
    return builder.build()


def two_names() -> Topology:
    """Repartition twice, by names of which one ends with the other, application id included."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", Consumed(STRING, STRING))
    for name in ("x", "shop-x"):
        orders.repartition(Repartitioned(STRING, STRING, name=name)).to("totals", Produced(STRING, STRING))
    return builder.build()


def with_topics(config: StreamsConfig) -> App:
    """Count orders, in an app that creates its topics."""
    return App(shop(), config, topics={"orders": 3, "totals": 1})
