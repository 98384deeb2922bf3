"""The graphs of the topologies, and their generated names, compared with those of the real Kafka Streams."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from tests.differential.cases import HERE, SEED_1, descriptions
from tests.differential.generate import SPECS, graphs
from tests.differential.topologies import OUT_OF_REACH, REBUILT, reason_out_of_reach

if TYPE_CHECKING:
    from ks_actors.topology import Topology

Cases: TypeAlias = dict[str, dict[str, Any]]
Built: TypeAlias = "dict[str, Topology]"

DESCRIBED = {graph: told for graph, *told in descriptions()}
# The errors of Kafka Streams with `ensure.explicit.internal.resource.naming` (KIP-1111).
REFUSED = {case["id"]: case["error"] for case in map(json.loads, (HERE / "unnamed.jsonl").read_text(encoding="utf-8").splitlines())}
LINE = re.compile(r"(?:Invalid topology: )?Following (changelog topic|state store|repartition topic)\(s\) has not been named: (.*)")
KINDS = ("changelog topic", "state store", "repartition topic")


@pytest.fixture(scope="module")
def cases() -> Cases:
    """Return a case of each graph. The search for them takes seconds, so it is no part of the collection of tests."""
    return {case["id"]: case for case in graphs()}


@pytest.fixture(scope="module")
def built(cases: Cases) -> Built:
    """Return the topology of each graph that can be built."""
    reachable = {graph: case for graph, case in cases.items() if reason_out_of_reach(case["topology"], case["params"]) is None}
    assert len(reachable) > 90
    return {graph: REBUILT[case["topology"]].build(case["params"]) for graph, case in reachable.items()}


def test_a_graph_has_kafka_streams_names_and_shape(built: Built, subtests: pytest.Subtests) -> None:
    """Nodes, stores, topics and subtopologies, text for text: an app that moves here finds its topics and stores again."""
    for graph, topology in built.items():
        with subtests.test(graph):
            stores, _, text = DESCRIBED[graph]
            assert str(topology.describe()) == text
            assert {*topology.stores, *topology.global_stores} == set(stores)


def test_a_graph_has_its_nodes_in_kafka_streams_order(built: Built, subtests: pytest.Subtests) -> None:
    """It is the order in which tasks initialize, punctuate and close them, in every subtopology."""
    for graph, topology in built.items():
        with subtests.test(graph):
            _, order, _ = DESCRIBED[graph]
            for subtopology in topology.subtopologies():
                assert list(subtopology.nodes) == [name for name in order if name in subtopology.nodes]
            assert {name for subtopology in topology.subtopologies() for name in subtopology.nodes} == set(order)


def test_a_name_is_generated_where_kafka_streams_says_so(built: Built, subtests: pytest.Subtests) -> None:
    """It says so of stores too that it does not make, and of the changelog alone where changes wait, and not of topics of foreign-key joins."""
    for graph, topology in built.items():
        theirs = {found[1]: set(found[2].split(", ")) for line in REFUSED[graph] if (found := LINE.fullmatch(line)) is not None}
        made = {*topology.stores, *topology.global_stores}
        made |= {f"{store}-changelog" for store in made} | set(topology.internal_topics)
        for kind, ours in zip(KINDS, topology.unnamed, strict=True):
            with subtests.test(graph, kind=kind):
                said = theirs.get(kind, set())
                assert (said - set(ours)) & made == set()
                assert {name for name in set(ours) - said if not name.startswith(("KTABLE-FK-JOIN-", "KTABLE-SUPPRESS-STATE-STORE-"))} == set()


def test_every_topology_of_the_oracle_is_rebuilt_or_has_its_reason(cases: Cases) -> None:
    """Each graph is in one of the two tables, and nothing is listed that does not exist."""
    assert set(DESCRIBED) == set(cases)
    assert {case["topology"] for case in cases.values()} == set(SPECS)
    for graph, case in cases.items():
        listed = case["topology"] in OUT_OF_REACH or graph in OUT_OF_REACH
        assert listed or case["topology"] in REBUILT, graph
        assert not (case["topology"] in OUT_OF_REACH and case["topology"] in REBUILT), graph
    assert set(OUT_OF_REACH) <= set(cases) | set(SPECS)
    assert set(REBUILT) <= set(SPECS)


def test_every_topology_has_its_cases() -> None:
    """Topologies that cannot be run yet have cases too."""
    assert {path.name for path in SEED_1.iterdir()} == {f"{name}.jsonl.xz" for name in SPECS}


def test_the_list_of_refused_graphs_has_every_one(cases: Cases) -> None:
    """Each graph of the oracle has been asked about, and some are refused."""
    assert set(REFUSED) == set(cases)
    assert sum(map(bool, REFUSED.values())) > 20
