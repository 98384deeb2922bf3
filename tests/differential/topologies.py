"""The topologies of the oracle in our own words, and those that are not: every graph is in exactly one of the two tables."""

from __future__ import annotations

from tests.differential import join_topologies, processor_topologies, stream_topologies, table_topologies, versioned_topologies
from tests.differential.generate import Params, graph_of
from tests.differential.parts import REBUILT

__all__ = [
    "OUT_OF_REACH",
    "REBUILT",
    "join_topologies",
    "processor_topologies",
    "reason_out_of_reach",
    "stream_topologies",
    "table_topologies",
    "versioned_topologies",
]

OUT_OF_REACH: dict[str, str] = {}
"""Topologies, or single graphs of them, that cannot be built, and why."""


def reason_out_of_reach(name: str, p: Params) -> str | None:
    """Tell why a case cannot be run; None if it can."""
    return OUT_OF_REACH.get(name) or OUT_OF_REACH.get(graph_of(name, p))
