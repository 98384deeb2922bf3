"""Stateless operators."""

from ks_actors.processors.stateless._batched import Batched
from ks_actors.processors.stateless._branch import Branch
from ks_actors.processors.stateless._columns import failed
from ks_actors.processors.stateless._flat import FlatMap, FlatMapValues, spread
from ks_actors.processors.stateless._inline import Inline
from ks_actors.processors.stateless._remaining import ATOMS, forward_rest
from ks_actors.processors.stateless._stateless import (
    DropNullKeys,
    Filter,
    ForEach,
    Map,
    MapValues,
    PassThrough,
    Peek,
    Print,
    SelectKey,
)

__all__ = [
    "ATOMS",
    "Batched",
    "Branch",
    "DropNullKeys",
    "Filter",
    "FlatMap",
    "FlatMapValues",
    "ForEach",
    "Inline",
    "Map",
    "MapValues",
    "PassThrough",
    "Peek",
    "Print",
    "SelectKey",
    "failed",
    "forward_rest",
    "spread",
]
