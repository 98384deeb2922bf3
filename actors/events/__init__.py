"""The event stream, its log, and the stall detector."""

from actors.events._events import (
    EVENTS,
    Abandoned,
    DeadLetter,
    EventStream,
    Failed,
    Restarted,
    Stalled,
    Undelivered,
)
from actors.events._logging import EventLog
from actors.events._stall import StallDetector
from actors.events._user_frames import shorten, to_tell

__all__ = [
    "EVENTS",
    "Abandoned",
    "DeadLetter",
    "EventLog",
    "EventStream",
    "Failed",
    "Restarted",
    "StallDetector",
    "Stalled",
    "Undelivered",
    "shorten",
    "to_tell",
]
