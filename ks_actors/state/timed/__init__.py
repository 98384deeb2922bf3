"""Parts of window and session stores."""

from ks_actors.state.timed._expiry import take_out
from ks_actors.state.timed._key_index import (
    FACTS,
    SEGMENT,
    SEQUENCE_BITS,
    SEQUENCE_MASK,
    SHORTEST_SEGMENT_MS,
    SUFFIX,
    VISITS,
    KeyIndex,
    Track,
)
from ks_actors.state.timed._timed_tracks import TimedKeyIndex
from ks_actors.state.timed._timeline import Found, Timeline, into_chunks, used_up

__all__ = [
    "FACTS",
    "SEGMENT",
    "SEQUENCE_BITS",
    "SEQUENCE_MASK",
    "SHORTEST_SEGMENT_MS",
    "SUFFIX",
    "VISITS",
    "Found",
    "KeyIndex",
    "TimedKeyIndex",
    "Timeline",
    "Track",
    "into_chunks",
    "take_out",
    "used_up",
]
