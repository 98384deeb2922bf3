"""The drain of a task's in-flight records and cached updates before a commit."""

from __future__ import annotations

from itertools import count
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ks_actors.task._update_cache import UpdateCache
    from ks_actors.task.calls._in_flight import InFlight

_SLICE = 1000
_OUTPUT_IDS: Final = count()


class Draining:
    """Emit in-flight results and cached updates of a task, in short turns that never wait.

    Caches are flushed upstream first. The next cache is flushed once no record is in flight,
    because results of the earlier cache may change it. If no cache can be flushed, nodes that
    collect records send them, upstream first, too.

    With `replayable`, the time when results are emitted depends on the records, never on the
    duration of calls. Nodes take one record at a time until a node is full; then, when all calls
    have ended, all nodes emit their results.

    `since` is when the task stopped taking records for a commit, None while it is fed. `moved` is
    the time of its last progress since then. `fed` is when it was last fed again. `took` is the
    length of its last drain, and `slow` says whether the drain took longer than a commit waits
    (seconds on the loop's clock). A task with `calls` that may take long, in flight or `blocking` a
    thread, may be left out of a commit. With `apart` its output is kept by itself until a commit
    takes the task. That output has the `output_id`, which is new for each new plan of the task.
    """

    def __init__(
        self,
        nodes: Sequence[InFlight],
        caches: Sequence[UpdateCache],
        *,
        replayable: bool = False,
        apart: bool = False,
        blocking: bool = False,
    ) -> None:
        self.calls: bool = bool(nodes) or blocking
        self.wanted: bool = self.calls or bool(caches)
        self.since: float | None = None
        self.moved: float = -inf
        self.fed: float = -inf
        self.slow: bool = False
        self.took: float = 0.0
        self.output_id: int | None = next(_OUTPUT_IDS) if self.calls and apart else None
        self._nodes = nodes
        self._caches = caches
        self._in_turns: bool = replayable and bool(nodes)
        # Each update may block for long, so check the clock after each update.
        self._slice: int = 1 if blocking else _SLICE
        self._under_way: UpdateCache | None = None

    @property
    def done(self) -> bool:
        """Whether nothing is in flight or cached."""
        return not (any(self._caches) or any(node.in_flight for node in self._nodes))

    @property
    def ready(self) -> bool:
        """Whether `step` has work."""
        if self._in_turns and not self._settled():
            return False
        return (
            any(node.has_results for node in self._nodes)
            or self._next() is not None
            or self._waiting() is not None
        )

    @property
    def retries_at(self) -> float:
        """When the last pause before a retry ends, or has ended (seconds on the loop's clock)."""
        return max((node.retries_at for node in self._nodes), default=-inf)

    @property
    def cached_updates(self) -> int:
        """The number of cached updates."""
        return sum(map(len, self._caches))

    def take_results(self) -> bool:
        """Emit finished results of asynchronous nodes; return whether there were any."""
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
        """Emit results and cached updates, for about `seconds`."""
        deadline = clock() + seconds
        if self._in_turns and not self._settled():
            return
        self._emit()
        while (cache := self._next()) is not None:
            self._under_way = cache
            # Flush no more than the nodes downstream take at once: other updates stay cached, so
            # memory is bounded.
            cache.flush(self.room())
            if clock() >= deadline:
                return
        # Send this node's records last, because a cache may still add records to its batch.
        if (node := self._waiting()) is not None:
            node.flush()

    def room(self) -> int:
        """Return how many records may be added now."""
        if not self._nodes:
            return self._slice
        room = min(node.room for node in self._nodes)
        # Take one record at a time, as it may become many: otherwise the record at which a node is
        # full would depend on the batch.
        return min(room, 1) if self._in_turns else room

    def drop(self) -> None:
        """Discard the cached updates."""
        for cache in self._caches:
            cache.drop()

    def _settled(self) -> bool:
        return all(node.settled for node in self._nodes)

    def _waiting(self) -> InFlight | None:
        """Return the node that may send its waiting records.

        No node upstream of that node has records in flight. Nodes are listed from the sinks up.
        """
        for node in reversed(self._nodes):
            if node.waits:
                return node
            if node.in_flight:
                return None
        return None

    def _next(self) -> UpdateCache | None:
        """Return the cache that may be flushed now."""
        cache = next((cache for cache in self._caches if cache), None)
        if cache is None or self.room() == 0:
            return None
        return (
            cache
            if cache is self._under_way or not any(node.in_flight for node in self._nodes)
            else None
        )
