"""Parts of window and session stores."""

from ks_actors.state.timed._expiry import take_out
from ks_actors.state.timed._reader import SegmentedReader, TimedReader
from ks_actors.state.timed._segmented_rows import FACTS, Found, SegmentedRows
from ks_actors.state.timed._slot_form import (
    DUPLICATES,
    ENDS,
    LATEST,
    SEGMENT,
    SEQUENCE_BITS,
    SEQUENCE_MASK,
    SESSIONS,
    SHIFT,
    SUFFIX,
    WINDOWS,
)
from ks_actors.state.timed._timed_store import VISITS, TimedStore, Track

__all__ = [
    "DUPLICATES",
    "ENDS",
    "FACTS",
    "LATEST",
    "SEGMENT",
    "SEQUENCE_BITS",
    "SEQUENCE_MASK",
    "SESSIONS",
    "SHIFT",
    "SUFFIX",
    "VISITS",
    "WINDOWS",
    "Found",
    "SegmentedReader",
    "SegmentedRows",
    "TimedReader",
    "TimedStore",
    "Track",
    "take_out",
]
