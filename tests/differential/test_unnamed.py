"""Generated names of stores and topics, compared with what Kafka Streams refuses by `ensure.explicit.internal.resource.naming` (KIP-1111)."""

from __future__ import annotations

import json
import re

import pytest

from .cases import HERE
from .generate import graphs
from .topologies import REBUILT, reason_out_of_reach

GRAPHS = {case["id"]: case for case in graphs()}
REFUSED = {case["id"]: case["error"] for case in map(json.loads, (HERE / "unnamed.jsonl").read_text(encoding="utf-8").splitlines())}
LINE = re.compile(r"(?:Invalid topology: )?Following (changelog topic|state store|repartition topic)\(s\) has not been named: (.*)")
KINDS = ("changelog topic", "state store", "repartition topic")


@pytest.mark.parametrize("graph", [graph for graph, case in GRAPHS.items() if reason_out_of_reach(case["topology"], case["params"]) is None])
def test_a_name_is_generated_where_kafka_streams_says_so(graph: str) -> None:
    """It says so of stores too that it does not make, and of the changelog alone where changes wait, and not of topics of foreign-key joins."""
    topology = REBUILT[GRAPHS[graph]["topology"]].build(GRAPHS[graph]["params"])
    theirs = {found[1]: set(found[2].split(", ")) for line in REFUSED[graph] if (found := LINE.fullmatch(line)) is not None}
    made = {*topology.stores, *topology.global_stores}
    made |= {f"{store}-changelog" for store in made} | set(topology.internal_topics)
    for kind, ours in zip(KINDS, topology.unnamed, strict=True):
        said = theirs.get(kind, set())
        assert (said - set(ours)) & made == set()
        assert {name for name in set(ours) - said if not name.startswith(("KTABLE-FK-JOIN-", "KTABLE-SUPPRESS-STATE-STORE-"))} == set()


def test_the_list_has_every_graph() -> None:
    """Each graph of the oracle has been asked about, and some are refused."""
    assert set(REFUSED) == set(GRAPHS)
    assert sum(map(bool, REFUSED.values())) > 20
