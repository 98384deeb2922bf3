"""The graphs of the topologies, compared with those of the real Kafka Streams."""

from __future__ import annotations

import pytest

from .cases import SEED_1, descriptions
from .generate import SPECS, graphs
from .topologies import OUT_OF_REACH, REBUILT, reason_out_of_reach

GRAPHS = {case["id"]: case for case in graphs()}
DESCRIBED = {graph: told for graph, *told in descriptions()}
REACHABLE = [graph for graph, case in GRAPHS.items() if reason_out_of_reach(case["topology"], case["params"]) is None]


@pytest.mark.parametrize("graph", REACHABLE)
def test_a_graph_has_kafka_streams_names_and_shape(graph: str) -> None:
    """Nodes, stores, topics and subtopologies, text for text: an app that moves here finds its topics and stores again."""
    case = GRAPHS[graph]
    stores, _, text = DESCRIBED[graph]
    topology = REBUILT[case["topology"]].build(case["params"])
    assert str(topology.describe()) == text
    assert {*topology.stores, *topology.global_stores} == set(stores)


@pytest.mark.parametrize("graph", REACHABLE)
def test_a_graph_has_its_nodes_in_kafka_streams_order(graph: str) -> None:
    """It is the order in which tasks initialize, punctuate and close them, in every subtopology."""
    case = GRAPHS[graph]
    _, order, _ = DESCRIBED[graph]
    topology = REBUILT[case["topology"]].build(case["params"])
    for subtopology in topology.subtopologies():
        assert list(subtopology.nodes) == [name for name in order if name in subtopology.nodes]
    assert {name for subtopology in topology.subtopologies() for name in subtopology.nodes} == set(order)


def test_every_topology_of_the_oracle_is_rebuilt_or_has_its_reason() -> None:
    """Each graph is in one of the two tables, and nothing is listed that does not exist."""
    assert set(DESCRIBED) == set(GRAPHS)
    assert {case["topology"] for case in GRAPHS.values()} == set(SPECS)
    for graph, case in GRAPHS.items():
        listed = case["topology"] in OUT_OF_REACH or graph in OUT_OF_REACH
        assert listed or case["topology"] in REBUILT, graph
        assert not (case["topology"] in OUT_OF_REACH and case["topology"] in REBUILT), graph
    assert set(OUT_OF_REACH) <= set(GRAPHS) | set(SPECS)
    assert set(REBUILT) <= set(SPECS)


def test_every_topology_has_its_cases() -> None:
    """Topologies that cannot be run yet have cases too."""
    assert {path.name for path in SEED_1.iterdir()} == {f"{name}.jsonl.xz" for name in SPECS}
