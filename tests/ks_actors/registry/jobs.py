"""An app whose registry is where an environment variable says."""

from __future__ import annotations

import os

from ks_actors import Consumed, Produced, StreamsBuilder, Topology
from ks_actors.registry import SchemaRegistry
from ks_actors.serdes import STRING
from tests.ks_actors.registry.messages import Item


def shop() -> Topology:
    """Copy items."""
    item = SchemaRegistry(os.environ["REGISTRY_URL"]).avro(Item, ids="header")
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, item)).to("out", Produced(STRING, item))
    return builder.build()
