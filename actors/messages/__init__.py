"""Messages, asks and refs."""

from actors.messages._ask import Ask, PendingAsk, fail_replies
from actors.messages._message import (
    Message,
    Pressure,
    Reply,
    Signal,
    Started,
    Stopping,
    StopReason,
    Terminated,
)
from actors.messages._ref import Ref, cell_of

__all__ = [
    "Ask",
    "Message",
    "PendingAsk",
    "Pressure",
    "Ref",
    "Reply",
    "Signal",
    "Started",
    "StopReason",
    "Stopping",
    "Terminated",
    "cell_of",
    "fail_replies",
]
