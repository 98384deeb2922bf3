"""The event loop as the framework uses it: clocks, deadlines, order of wake-ups, tasks, threads."""

from actors.loop._cancellations import Cancellations
from actors.loop._clock import Clock, TimerHandle
from actors.loop._deadlines import Deadlines, Expiring
from actors.loop._dispatch import TURN, Dispatch, LoopDispatch
from actors.loop._doorbell import Doorbell
from actors.loop._tasks import Tasks
from actors.loop._threads import ThreadLane

__all__ = [
    "TURN",
    "Cancellations",
    "Clock",
    "Deadlines",
    "Dispatch",
    "Doorbell",
    "Expiring",
    "LoopDispatch",
    "Tasks",
    "ThreadLane",
    "TimerHandle",
]
