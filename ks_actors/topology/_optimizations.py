"""Optimizations of a topology, by Kafka Streams' names (`topology.optimization`)."""

from __future__ import annotations

from typing import Any, Final

REUSE_SOURCE_TOPICS: Final = "reuse.ktable.source.topics"
MERGE_REPARTITION_TOPICS: Final = "merge.repartition.topics"
SINGLE_STORE_SELF_JOIN: Final = "single.store.self.join"
OPTIMIZATIONS: Final = (REUSE_SOURCE_TOPICS, MERGE_REPARTITION_TOPICS, SINGLE_STORE_SELF_JOIN)
NONE: Final = "none"
ALL: Final = "all"


def optimization(value: Any) -> str:
    """Return the names of optimizations, separated by commas.

    Takes `none`, `all`, or names, separated by commas or one by one.
    """
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, (list, tuple, set, frozenset)) or not all(
        isinstance(word, str) for word in words
    ):
        raise ValueError(f"is not one of {', '.join((NONE, ALL, *OPTIMIZATIONS))}")
    wanted = {word.strip().lower() for word in words}
    if len(wanted) > 1 and wanted & {NONE, ALL}:
        raise ValueError("has none or all beside other words")
    if wanted.difference(OPTIMIZATIONS, {NONE, ALL}):
        raise ValueError(f"is not one of {', '.join((NONE, ALL, *OPTIMIZATIONS))}")
    return ",".join(sorted(wanted)) or NONE


def wanted_by(text: str) -> frozenset[str]:
    """Return the optimizations that a setting's value selects."""
    return (
        frozenset()
        if text == NONE
        else frozenset(OPTIMIZATIONS)
        if text == ALL
        else frozenset(text.split(","))
    )
