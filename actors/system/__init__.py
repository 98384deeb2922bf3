"""The system: the root of a tree of actors."""

from actors.system._core import SystemCore
from actors.system._system import System
from actors.system._tree import ActorInfo

__all__ = ["ActorInfo", "System", "SystemCore"]
