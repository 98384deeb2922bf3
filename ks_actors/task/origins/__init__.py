"""The origins of records that operators and caches hold back."""

from ks_actors.task.origins._cached_origins import NONE_LATE, CachedOrigins, Flushed
from ks_actors.task.origins._pages import Chunk, OriginLeaf, OriginPage, Place, RawRecord
from ks_actors.task.origins._record_origins import RecordOrigins

__all__ = [
    "NONE_LATE",
    "CachedOrigins",
    "Chunk",
    "Flushed",
    "OriginLeaf",
    "OriginPage",
    "Place",
    "RawRecord",
    "RecordOrigins",
]
