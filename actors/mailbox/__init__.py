"""The mailbox: its bound, its lanes, and the control entries of the framework."""

from actors.mailbox._control import NOTHING, STALE, Due, Notice, StopRequest
from actors.mailbox._inbox import Inbox
from actors.mailbox._mailbox import Mailbox

__all__ = ["NOTHING", "STALE", "Due", "Inbox", "Mailbox", "Notice", "StopRequest"]
