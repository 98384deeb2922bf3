"""The DSL: streams and tables, which compile to a Topology."""

from typing import TYPE_CHECKING

from ks_actors.records import CustomWindows, Window, Windowed
from ks_actors.system import taken_from

if TYPE_CHECKING:
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
    from ks_actors.dsl._session_windowed import (
        SessionWindowedCogroupedStream,
        SessionWindowedStream,
    )
    from ks_actors.dsl._stream import Stream
    from ks_actors.dsl._suppressed import BufferConfig, Suppressed
    from ks_actors.dsl._table import GlobalTable, Table
    from ks_actors.dsl._windowed import TimeWindowedStream
    from ks_actors.dsl._windowed_partitioner import default_partitioner as default_partitioner
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
else:
    __getattr__ = taken_from(
        __name__,
        (
            "_windowed_partitioner",
            "_options",
            "_builder",
            "_stream",
            "windows",
            "_branching",
            "_table",
            "_grouped",
            "_suppressed",
            "_windowed",
            "_session_windowed",
            "_cogroup",
            "joins",
        ),
        others=("default_partitioner",),
    )

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
