"""Aggregations."""

from ks_actors.processors.aggregates._aggregates import StreamAggregate, StreamCount
from ks_actors.processors.aggregates._cached import cached_rows
from ks_actors.processors.aggregates._distinct import Distinct, IdentitySerde
from ks_actors.processors.aggregates._final_sessions import FinalSessionAggregate
from ks_actors.processors.aggregates._final_windows import FinalWindowedAggregate
from ks_actors.processors.aggregates._history import Superseded, with_history
from ks_actors.processors.aggregates._sessions import SessionAggregate, SessionAggregation
from ks_actors.processors.aggregates._sliding import SlidingAggregate
from ks_actors.processors.aggregates._table_aggregates import (
    TableAggregate,
    TableReduce,
    TableSelect,
)
from ks_actors.processors.aggregates._window_aggregation import WindowAggregation
from ks_actors.processors.aggregates._windowed import UnlimitedAggregate, WindowedAggregate

__all__ = [
    "Distinct",
    "FinalSessionAggregate",
    "FinalWindowedAggregate",
    "IdentitySerde",
    "SessionAggregate",
    "SessionAggregation",
    "SlidingAggregate",
    "StreamAggregate",
    "StreamCount",
    "Superseded",
    "TableAggregate",
    "TableReduce",
    "TableSelect",
    "UnlimitedAggregate",
    "WindowAggregation",
    "WindowedAggregate",
    "cached_rows",
    "with_history",
]
