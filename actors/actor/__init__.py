"""One actor: its class, context and spec, and the cell that runs it."""

from actors.actor._actor import HANDLED, Actor, Handled, Hook, SignalHook
from actors.actor._cell import Cell
from actors.actor._context import Context
from actors.actor._incarnation import Incarnation
from actors.actor._spec import Spec
from actors.actor._timers import Timers

__all__ = [
    "HANDLED",
    "Actor",
    "Cell",
    "Context",
    "Handled",
    "Hook",
    "Incarnation",
    "SignalHook",
    "Spec",
    "Timers",
]
