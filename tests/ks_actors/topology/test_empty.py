"""A topology that reads no topic is refused where it is to run: an app of it was healthy for ever, and did nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ks_actors import App, StreamsBuilder, StreamsConfig, Topology, TopologyError, stores
from ks_actors.batch import backfill
from ks_actors.serdes import STRING
from ks_actors.testing import TopologyTestDriver

CONFIG = StreamsConfig(application_id="app", default_key_serde=STRING, default_value_serde=STRING, log="memory://")
EMPTY: dict[str, Callable[[], Topology]] = {
    "topology": Topology,
    "builder": lambda: StreamsBuilder().build(),
    "store": lambda: Topology().add_state_store(stores.key_value("s", STRING, STRING)),
}


@pytest.mark.parametrize("kind", EMPTY)
def test_a_topology_without_sources_is_refused(kind: str) -> None:
    """By the app, the backfill and the test driver; Kafka Streams refuses it in the constructor of KafkaStreams."""
    topology = EMPTY[kind]()
    with pytest.raises(TopologyError, match=r"the topology of App reads no topic, so it would do nothing: add a source"):
        App(topology, CONFIG)
    with pytest.raises(TopologyError, match="the topology of TopologyTestDriver reads no topic"):
        TopologyTestDriver(topology, CONFIG)
    with pytest.raises(TopologyError, match="the topology of backfill reads no topic"):
        asyncio.run(backfill(topology, CONFIG))


def test_a_global_table_alone_is_enough() -> None:
    """As in Kafka Streams: queries read it."""
    builder = StreamsBuilder()
    builder.global_table("rows")
    App(builder.build(), CONFIG)
