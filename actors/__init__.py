"""Actors on asyncio: typed refs, supervision with a budget, a control lane, and a test kit.

The test kit has virtual time and seeded schedules.
"""

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
from actors.actor import HANDLED, Actor, Context, Handled, Hook, SignalHook, Spec, Timers
from actors.events import Abandoned, DeadLetter, Failed, Restarted, Stalled, Undelivered
from actors.mailbox import Mailbox
from actors.messages import (
    Ask,
    Message,
    Pressure,
    Ref,
    Reply,
    Signal,
    Started,
    Stopping,
    StopReason,
    Terminated,
)
from actors.supervision import Decision, Restart, Resume, Stop, Supervise
from actors.system import ActorInfo, System

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
