"""What a task still has in hand when it is to be committed."""

from __future__ import annotations

from itertools import count
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ks_actors.task._update_cache import HeldUpdates
    from ks_actors.task.calls._in_flight import InFlight

_SLICE = 1000
_LOTS: Final = count()


class Draining:
    """Hand on what a task's asynchronous nodes have in flight and what its caches hold, in turns that are short and never wait.

    Caches are flushed upstream first, and the next one not before nothing is in flight: what comes of the one before may change what it holds. When
    no cache can be flushed, a node in which records wait for others sends them, upstream first, too.

    With `replayable` it is the records that decide when something is handed on, never how long it has taken: a node takes one record at a time until
    one is full, and then all of them hand on, when all calls are over.

    `since` is when the task began to come to rest for a commit, None while it is fed; `fed` when it was fed again the last time; `took` how long it
    took to come to rest the last time, and `slow` whether that was longer than a commit waits (seconds on the loop's clock). With `apart` the output
    of a task that has calls in flight is kept by itself until a commit takes the task: under the number `lot`, a new one each time that the task
    begins anew.
    """

    def __init__(self, nodes: Sequence[InFlight], caches: Sequence[HeldUpdates], *, replayable: bool = False, apart: bool = False) -> None:
        self.wanted: bool = bool(nodes or caches)
        self.calls: bool = bool(nodes)
        self.since: float | None = None
        self.fed: float = -inf
        self.slow: bool = False
        self.took: float = 0.0
        self.lot: int | None = next(_LOTS) if nodes and apart else None
        self._nodes = nodes
        self._caches = caches
        self._in_turns: bool = replayable and bool(nodes)
        self._under_way: HeldUpdates | None = None

    @property
    def done(self) -> bool:
        """Return whether nothing is in hand."""
        return not (any(self._caches) or any(node.in_flight for node in self._nodes))

    @property
    def ready(self) -> bool:
        """Return whether `step` has something to do."""
        if self._in_turns and not self._settled():
            return False
        return any(node.has_results for node in self._nodes) or self._next() is not None or self._waiting() is not None

    @property
    def held(self) -> int:
        """How many updates are held back."""
        return sum(map(len, self._caches))

    def take_results(self) -> bool:
        """Hand on what asynchronous nodes have finished; return whether that was anything."""
        if not self._in_turns:
            return self._emit()
        any_results = False
        while self.room() == 0 and self._settled() and self._emit():
            any_results = True
        return any_results

    def _emit(self) -> bool:
        any_results = False
        for node in self._nodes:
            any_results = node.emit() or any_results
        return any_results

    def step(self, clock: Callable[[], float], seconds: float) -> None:
        """Hand on what there is, for about so long."""
        deadline = clock() + seconds
        if self._in_turns and not self._settled():
            return
        self._emit()
        while (cache := self._next()) is not None:
            self._under_way = cache
            cache.flush(self.room())
            if clock() >= deadline:
                return
        if (node := self._waiting()) is not None:
            node.flush()

    def room(self) -> int:
        """Return how many records may be taken now."""
        room = min((node.room for node in self._nodes), default=_SLICE)
        # Of several at once one may become many: where a node is full would depend on how many came together.
        return min(room, 1) if self._in_turns else room

    def drop(self) -> None:
        """Forget what is held back."""
        for cache in self._caches:
            cache.drop()

    def _settled(self) -> bool:
        return all(node.settled for node in self._nodes)

    def _waiting(self) -> InFlight | None:
        """Return the node that is to send what waits in it: nothing more comes from those above it, which are behind it in the order of nodes."""
        for node in reversed(self._nodes):
            if node.waits:
                return node
            if node.in_flight:
                return None
        return None

    def _next(self) -> HeldUpdates | None:
        """Return the cache that may be flushed now."""
        cache = next((cache for cache in self._caches if cache), None)
        if cache is None or self.room() == 0:
            return None
        return cache if cache is self._under_way or not any(node.in_flight for node in self._nodes) else None
