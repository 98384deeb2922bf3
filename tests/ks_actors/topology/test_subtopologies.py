"""The nodes of one task, and the topics with equal partitions."""

from __future__ import annotations

import re

import pytest

from ks_actors._errors import TopologyError
from ks_actors.processors.stateless._stateless import PassThrough
from ks_actors.topology import Topology, stores

SHARED = stores.key_value("shared")


def chain(topology: Topology, number: int, topic: str) -> None:
    topology.add_source(f"in{number}", topic)
    topology.add_operator(f"work{number}", PassThrough(), f"in{number}")
    topology.add_sink(f"out{number}", f"{topic}-out", f"work{number}")


def test_unconnected_nodes_are_apart_and_numbered_in_the_order_added() -> None:
    """With their topics and stores."""
    topology = Topology()
    chain(topology, 0, "a")
    topology.add_source("in1", re.compile("x.*"))
    topology.add_operator("work1", PassThrough(), "in1", stores=[SHARED])
    first, second = topology.subtopologies()
    assert (first.id, first.nodes, first.source_topics, first.sink_topics) == (0, ("in0", "work0", "out0"), ("a",), ("a-out",))
    assert (second.id, second.nodes, second.stores) == (1, ("in1", "work1"), {"shared": SHARED})
    assert [pattern.pattern for pattern in second.source_patterns] == ["x.*"]


def test_a_shared_store_makes_one_subtopology_of_two() -> None:
    """The first one gives the number; later ones keep their own."""
    topology = Topology()
    for number, topic in enumerate("abc"):
        chain(topology, number, topic)
    topology.add_state_store(SHARED, "work0", "work2")
    parts = topology.subtopologies()
    assert [(part.id, part.source_topics) for part in parts] == [(0, ("a", "c")), (1, ("b",))]
    assert list(parts[0].stores) == ["shared"]


def test_a_topic_of_ones_own_does_not_connect() -> None:
    """Sink and source of a repartition topic are in different subtopologies; the topic is known by its bare name."""
    topology = Topology()
    topology.add_source("in", "a")
    topology.add_internal_topic("r")
    topology.add_sink("to", "r", "in")
    topology.add_sink("elsewhere", lambda key, value, context: "b", "in")
    topology.add_source("from", "r")
    first, second = topology.subtopologies()
    assert (first.repartition_topics, first.sink_topics) == ((), ("r",))
    assert (second.repartition_topics, second.source_topics) == (("r",), ("r",))


def test_global_stores_take_a_number() -> None:
    """As in Kafka Streams: task ids depend on it."""
    topology = Topology()
    chain(topology, 0, "a")
    topology.add_global_store(SHARED, "source", "topic", "keeper", PassThrough())
    chain(topology, 2, "c")
    assert [part.id for part in topology.subtopologies()] == [0, 2]


def test_copartition_groups_that_share_a_topic_are_one() -> None:
    """Each subtopology has the copartition groups of its topics."""
    topology = Topology()
    for number, topic in enumerate("abcdef"):
        chain(topology, number, topic)
    for first, second in [("in0", "in1"), ("in3", "in4"), ("in1", "in2")]:
        topology.copartition({first, second})
    topology.copartition({"in5"})
    parts = topology.subtopologies()
    assert [part.copartition_groups for part in parts] == [
        (frozenset("abc"),),
        (frozenset("abc"),),
        (frozenset("abc"),),
        (frozenset("de"),),
        (frozenset("de"),),
        (),
    ]


def test_a_group_of_sources_without_topics_means_nothing() -> None:
    """Patterns are not known before the app runs."""
    topology = Topology().add_source("in", re.compile("x.*"))
    topology.copartition({"in"})
    assert topology.subtopologies()[0].copartition_groups == ()


def test_different_numbers_of_partitions_cannot_be_joined() -> None:
    """If all are told; one that is not adapts."""
    topology = Topology()
    for number, (topic, partitions) in enumerate([("r", 2), ("s", 3), ("t", None)]):
        topology.add_internal_topic(topic, partitions=partitions)
        chain(topology, number, topic)
    topology.copartition({"in0", "in1", "in2"})
    with pytest.raises(TopologyError, match=r"different numbers of partitions: r \(2\), s \(3\)"):
        topology.copartition({"in0", "in1"})
