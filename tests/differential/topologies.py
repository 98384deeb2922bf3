"""The topologies of the oracle in our own words, and those that are not: every graph is in exactly one of the two tables."""

from __future__ import annotations

from . import processor_topologies, stream_topologies, table_topologies
from .generate import Params, graph_of
from .parts import REBUILT

__all__ = ["OUT_OF_REACH", "REBUILT", "processor_topologies", "reason_out_of_reach", "stream_topologies", "table_topologies"]

_SESSIONS = "there are no session windows yet"
_SLIDING = "there are no sliding windows yet"
_STREAM_JOINS = "there are no joins of two streams yet"
_SUPPRESS = "there is no suppression yet"
_FOREIGN_KEYS = "there are no foreign-key joins yet"
_VERSIONED = "there are no versioned stores yet"

OUT_OF_REACH: dict[str, str] = {
    "sliding": _SLIDING,
    "cogroup_windowed [window=sliding]": _SLIDING,
    "session": _SESSIONS,
    "cogroup_windowed [window=session]": _SESSIONS,
    "ss_inner": _STREAM_JOINS,
    "ss_left": _STREAM_JOINS,
    "ss_outer": _STREAM_JOINS,
    "ss_self": _STREAM_JOINS,
    "ss_inner_repartition": _STREAM_JOINS,
    "ss_left_repartition": _STREAM_JOINS,
    "ss_join_window": _STREAM_JOINS,
    "ss_chain": _STREAM_JOINS,
    "suppress_window": _SUPPRESS,
    "suppress_limit": _SUPPRESS,
    "suppress_limit_groupby": _SUPPRESS,
    "fk_inner": _FOREIGN_KEYS,
    "fk_left": _FOREIGN_KEYS,
    "fk_left_groupby": _FOREIGN_KEYS,
    "versioned_st_inner": _VERSIONED,
    "versioned_st_left": _VERSIONED,
    "versioned_tt_inner": _VERSIONED,
    "versioned_tt_left": _VERSIONED,
    "versioned_tt_outer": _VERSIONED,
    "versioned_filter": _VERSIONED,
    "versioned_groupby": _VERSIONED,
}
"""Topologies, or single graphs of them, that cannot be built, and why."""


def reason_out_of_reach(name: str, p: Params) -> str | None:
    """Tell why a case cannot be run; None if it can."""
    return OUT_OF_REACH.get(name) or OUT_OF_REACH.get(graph_of(name, p))
