"""The DSL: streams and tables, which compile to a Topology."""

from ks_actors.dsl._branching import BranchedStream
from ks_actors.dsl._builder import StreamsBuilder
from ks_actors.dsl._cogroup import CogroupedStream, TimeWindowedCogroupedStream
from ks_actors.dsl._grouped import GroupedStream, GroupedTable
from ks_actors.dsl._options import (
    Consumed,
    Grouped,
    Joined,
    Materialized,
    Produced,
    Repartitioned,
    TableJoined,
)
from ks_actors.dsl._session_windowed import SessionWindowedCogroupedStream, SessionWindowedStream
from ks_actors.dsl._stream import Stream
from ks_actors.dsl._suppressed import BufferConfig, Suppressed
from ks_actors.dsl._table import GlobalTable, Table
from ks_actors.dsl._windowed import TimeWindowedStream
from ks_actors.dsl.joins import StreamJoined
from ks_actors.dsl.windows import (
    CalendarWindows,
    EmitStrategy,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
)
from ks_actors.records import CustomWindows, Window, Windowed

__all__ = [
    "BranchedStream",
    "BufferConfig",
    "CalendarWindows",
    "CogroupedStream",
    "Consumed",
    "CustomWindows",
    "EmitStrategy",
    "GlobalTable",
    "Grouped",
    "GroupedStream",
    "GroupedTable",
    "JoinWindows",
    "Joined",
    "Materialized",
    "Produced",
    "Repartitioned",
    "SessionWindowedCogroupedStream",
    "SessionWindowedStream",
    "SessionWindows",
    "SlidingWindows",
    "Stream",
    "StreamJoined",
    "StreamsBuilder",
    "Suppressed",
    "Table",
    "TableJoined",
    "TimeWindowedCogroupedStream",
    "TimeWindowedStream",
    "TimeWindows",
    "UnlimitedWindows",
    "Window",
    "Windowed",
]
