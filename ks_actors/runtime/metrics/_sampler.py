"""The actor that takes notes for rates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors import Actor, Mailbox, Message, Started
from ks_actors.lifecycle import component_log
from ks_actors.metrics import NOTE_S

if TYPE_CHECKING:
    from actors import Signal
    from ks_actors.metrics import Registry

SAMPLER_MAILBOX = Mailbox(capacity=100, overflow="fail_system")
_log = component_log(__name__)


class Note(Message, frozen=True):
    """Note all totals (internal)."""


class Sampler(Actor[Note]):
    """Note all totals each 10 s, so that rates are those of the last minute."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def signal(self, signal: Signal) -> None:
        """Set the timer at the start."""
        if isinstance(signal, Started):
            self.ctx.timers.every("note", NOTE_S, Note())

    def receive(self, message: Note) -> None:  # noqa: ARG002 - there is only one
        """Note all totals."""
        try:
            self._registry.note()
        except Exception:  # noqa: BLE001 - a fault of the metrics is no reason to end the app
            _log.exception("the totals of metrics could not be noted; it is retried")
