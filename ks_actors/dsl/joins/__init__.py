"""Joins by kind: of streams and tables, by timestamps, by a foreign key."""

from ks_actors.dsl.joins._asof import stream_asof_join
from ks_actors.dsl.joins._foreign_key import foreign_key_join
from ks_actors.dsl.joins._stream_stream import StreamJoined, stream_stream_join
from ks_actors.dsl.joins._stream_table import stream_global_table_join, stream_table_join
from ks_actors.dsl.joins._table_table import table_table_join

__all__ = [
    "StreamJoined",
    "foreign_key_join",
    "stream_asof_join",
    "stream_global_table_join",
    "stream_stream_join",
    "stream_table_join",
    "table_table_join",
]
