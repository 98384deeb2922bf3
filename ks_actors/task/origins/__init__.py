"""Where records that are held back came from."""

from ks_actors.task.origins._cached_origins import NONE_LATE, Flushed, Recent
from ks_actors.task.origins._leaves import Leaf, Place
from ks_actors.task.origins._pages import Chunk, Page, RawRecord
from ks_actors.task.origins._record_origins import HeldBack

__all__ = [
    "NONE_LATE",
    "Chunk",
    "Flushed",
    "HeldBack",
    "Leaf",
    "Page",
    "Place",
    "RawRecord",
    "Recent",
]
