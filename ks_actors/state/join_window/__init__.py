"""Stores of stream-stream joins."""

from ks_actors.state.join_window._batch_lookups import SpanRuns
from ks_actors.state.join_window._lookups import SpanWindows
from ks_actors.state.join_window._rows_by_time import Spans
from ks_actors.state.join_window._segment import Raw

__all__ = [
    "Raw",
    "SpanRuns",
    "SpanWindows",
    "Spans",
]
