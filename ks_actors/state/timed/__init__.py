"""Parts of window and session stores."""

from ks_actors.state.timed._expiry import take_out
from ks_actors.state.timed._loading import load, load_all
from ks_actors.state.timed._slot_form import ENDS, LATEST, SEGMENT, SESSIONS, SHIFT, SUFFIX, WINDOWS
from ks_actors.state.timed._timed_store import (
    FACTS,
    SEQUENCE_BITS,
    SEQUENCE_MASK,
    VISITS,
    TimedStore,
    Track,
)
from ks_actors.state.timed._timeline import Found, Timeline, into_chunks, merged, stored_of_key

__all__ = [
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
    "TimedStore",
    "Timeline",
    "Track",
    "into_chunks",
    "load",
    "load_all",
    "merged",
    "stored_of_key",
    "take_out",
]
