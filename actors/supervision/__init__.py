"""The life of an actor under its parent: states, failure, restart, stop."""

from actors.supervision._ending import bury, finish
from actors.supervision._failing import failed
from actors.supervision._family import Family, Parent
from actors.supervision._lifecycle import State, move
from actors.supervision._mortal import Mortal
from actors.supervision._supervision import (
    Decision,
    Restart,
    RestartBudget,
    Resume,
    Stop,
    Supervise,
    stop_always,
)

__all__ = [
    "Decision",
    "Family",
    "Mortal",
    "Parent",
    "Restart",
    "RestartBudget",
    "Resume",
    "State",
    "Stop",
    "Supervise",
    "bury",
    "failed",
    "finish",
    "move",
    "stop_always",
]
