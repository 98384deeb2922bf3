"""Joins."""

from ks_actors.processors.joins._as_of import KeepRecords, RecordsAsOf
from ks_actors.processors.joins._buffered_join import BufferedStreamTableJoin, WaitingKeySerde
from ks_actors.processors.joins._join_pair import JoinPair, RankedBatch
from ks_actors.processors.joins._pending_serdes import PendingKeySerde, PendingValuesSerde
from ks_actors.processors.joins._self_join import SelfJoin
from ks_actors.processors.joins._stream_join import JoinWindow, StreamJoinSide
from ks_actors.processors.joins._stream_table_join import StreamTableJoin
from ks_actors.processors.joins._table_joins import TableJoinMerge, TableJoinSide

__all__ = [
    "BufferedStreamTableJoin",
    "JoinPair",
    "JoinWindow",
    "KeepRecords",
    "PendingKeySerde",
    "PendingValuesSerde",
    "RankedBatch",
    "RecordsAsOf",
    "SelfJoin",
    "StreamJoinSide",
    "StreamTableJoin",
    "TableJoinMerge",
    "TableJoinSide",
    "WaitingKeySerde",
]
