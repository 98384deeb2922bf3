"""The stores of stream-stream joins."""

from ks_actors.state.join_window._lookups import JoinWindowLookups
from ks_actors.state.join_window._rows_by_time import JoinWindowRows
from ks_actors.state.join_window._segment import Raw

__all__ = [
    "JoinWindowLookups",
    "JoinWindowRows",
    "Raw",
]
