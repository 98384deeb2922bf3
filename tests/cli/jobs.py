"""Topologies that the tests of the command line run."""

from __future__ import annotations

import re

from ks_actors import Consumed, Materialized, Produced, StreamsBuilder, Topology
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
