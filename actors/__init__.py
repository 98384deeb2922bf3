"""Actors on asyncio: typed refs, supervision with a budget, a control lane, and a test kit.

The test kit has virtual time and seeded schedules.
"""

from actors._actor import HANDLED, Actor, Handled, Hook, SignalHook
from actors._ask import Ask
from actors._context import Context
from actors._errors import (
    ActorFailed,
    ActorsError,
    ActorStopped,
    AskTimeout,
    MailboxFull,
    NameTaken,
    NoReply,
    NotAChild,
    SelfDeadlock,
    StartFailed,
    StashFull,
    StrayCancellation,
    SystemClosed,
)
from actors._events import Abandoned, DeadLetter, Failed, Restarted, Stalled, Undelivered
from actors._mailbox import Mailbox
from actors._message import (
    Message,
    Pressure,
    Reply,
    Signal,
    Started,
    Stopping,
    StopReason,
    Terminated,
)
from actors._ref import Ref
from actors._spec import Spec
from actors._supervision import Decision, Restart, Resume, Stop, Supervise
from actors._system import System
from actors._timers import Timers
from actors._tree import ActorInfo

__all__ = [
    "HANDLED",
    "Abandoned",
    "Actor",
    "ActorFailed",
    "ActorInfo",
    "ActorStopped",
    "ActorsError",
    "Ask",
    "AskTimeout",
    "Context",
    "DeadLetter",
    "Decision",
    "Failed",
    "Handled",
    "Hook",
    "Mailbox",
    "MailboxFull",
    "Message",
    "NameTaken",
    "NoReply",
    "NotAChild",
    "Pressure",
    "Ref",
    "Reply",
    "Restart",
    "Restarted",
    "Resume",
    "SelfDeadlock",
    "Signal",
    "SignalHook",
    "Spec",
    "Stalled",
    "StartFailed",
    "Started",
    "StashFull",
    "Stop",
    "StopReason",
    "Stopping",
    "StrayCancellation",
    "Supervise",
    "System",
    "SystemClosed",
    "Terminated",
    "Timers",
    "Undelivered",
]
