"""The system: the root of a tree of actors."""

from actors.system._kernel import Kernel
from actors.system._system import System
from actors.system._tree import ActorInfo

__all__ = ["ActorInfo", "Kernel", "System"]
