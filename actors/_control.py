"""Entries of the two lanes that come before users' messages. Private types, so that no message can be mistaken for one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from actors._message import Pressure, Terminated


class StopRequest:
    """System lane: end after the current message."""

    __slots__ = ()


class Notice:
    """System lane: a signal about the actor behind `source`; `child` when it comes to a parent that did not ask for it."""

    __slots__ = ("child", "signal", "source")

    def __init__(self, signal: Terminated | Pressure, source: object, *, child: bool = False) -> None:
        self.signal: Terminated | Pressure = signal
        self.source: object = source
        self.child: bool = child


class Due(ABC):
    """Urgent lane: what turns into a message when its turn comes, a timer that fired or the result of a pipe."""

    __slots__ = ()

    @abstractmethod
    def open(self) -> Any:
        """Return the message, or `STALE` when it must not be delivered any more."""


class Marker(Enum):
    """What stands where a message might."""

    STALE = "stale"
    NOTHING = "nothing"


STALE: Final = Marker.STALE
NOTHING: Final = Marker.NOTHING
