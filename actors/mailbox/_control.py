"""Entries of the system and urgent lanes.

The types are private, so that no user message can be mistaken for an entry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from actors.messages import Pressure, Terminated


class StopRequest:
    """System lane: stop after the current message."""

    __slots__ = ()


class Notice:
    """System lane: a signal about the actor behind `source`.

    `child` is set for a child's failure, which its parent gets without a watch.
    """

    __slots__ = ("child", "signal", "source")

    def __init__(
        self, signal: Terminated | Pressure, source: object, *, child: bool = False
    ) -> None:
        self.signal: Terminated | Pressure = signal
        self.source: object = source
        self.child: bool = child


class Due(ABC):
    """Urgent lane: a fired timer or a pipe's result, which becomes a message when taken."""

    __slots__ = ()

    @abstractmethod
    def open(self) -> Any:
        """Return the message, or `STALE` when it must no longer be delivered."""


class Marker(Enum):
    """Placeholders for a message."""

    STALE = "stale"
    NOTHING = "nothing"


STALE: Final = Marker.STALE
NOTHING: Final = Marker.NOTHING
