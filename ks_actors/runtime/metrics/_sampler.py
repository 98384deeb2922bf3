"""The actor that samples totals for rates, measures the event loop, and reads databases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from actors import Actor, Mailbox, Message, Started
from ks_actors.lifecycle import component_log, in_thread
from ks_actors.metrics import NOTE_S
from ks_actors.state import SHARED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from actors import Signal
    from ks_actors.runtime.shared import Metrics
    from ks_actors.task import RegisteredStores

SAMPLER_MAILBOX = Mailbox(capacity=100, overflow="fail_system")
_BEAT_S: Final = 1.0
_log = component_log(__name__)


class Note(Message, frozen=True):
    """Note all totals (internal)."""


class Beat(Message, frozen=True):
    """Measure how late this message is (internal)."""


class DatabasesRead(Message, frozen=True):
    """The figures of all databases (internal)."""

    found: Mapping[str, Mapping[str, float]]


class DatabasesNotRead(Message, frozen=True):
    """Asking the databases failed (internal)."""

    error: Exception


SamplerMessage: TypeAlias = Note | Beat | DatabasesRead | DatabasesNotRead


class Sampler(Actor[SamplerMessage]):
    """Note all totals each 10 s, so that rates are rates of the last minute.

    Databases are read equally often, in a thread, while somebody reads the metrics. A timer
    measures each second how late the event loop is.
    """

    def __init__(self, metrics: Metrics, registry: Iterable[RegisteredStores]) -> None:
        self._metrics = metrics
        self._stores = registry
        self._due: float = 0.0
        self._asking: bool = False

    def signal(self, signal: Signal) -> None:
        """Set the timers at the start."""
        if isinstance(signal, Started):
            self._due = self.ctx.time() + _BEAT_S
            self.ctx.timers.every("note", NOTE_S, Note())
            self.ctx.timers.every("beat", _BEAT_S, Beat())

    def receive(self, message: SamplerMessage) -> None:
        """Take samples."""
        match message:
            case Beat():
                now = self.ctx.time()
                self._metrics.loop_lag.add(max(0.0, now - self._due) * 1000)
                # The timer counts from the delivery of its last message.
                self._due = now + _BEAT_S
            case Note():
                self._note()
            case DatabasesRead():
                self._asking = False
                self._metrics.databases = message.found
            case DatabasesNotRead():
                self._asking = False
                _log.debug("could not read the figures of databases: %s", message.error)
            case _:
                assert_never(message)

    def _note(self) -> None:
        registry = self._metrics.registry
        try:
            registry.note()
        except Exception:  # noqa: BLE001 - a fault of the metrics is no reason to end the app
            _log.exception("could not sample the totals of metrics; retrying")
        if registry.was_read and not self._asking:
            self._asking = True
            self.ctx.pipe(_read(tuple(self._stores)), DatabasesRead, DatabasesNotRead)


async def _read(stores: Iterable[RegisteredStores]) -> Mapping[str, Mapping[str, float]]:
    """Ask all databases in a thread.

    Return the figures by task, or by `shared` for the database of all tasks.
    """
    on_disk = {
        SHARED if one.stores.in_shared else str(one.task): one.stores
        for one in stores
        if one.stores.on_disk
    }
    if not on_disk:
        return {}
    found = await in_thread(lambda: [each.statistics() for each in on_disk.values()])
    return {name: figures for name, figures in zip(on_disk, found, strict=True) if figures}
