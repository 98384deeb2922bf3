"""Timeouts of many asks at the price of one timer.

A timer per ask costs 3 µs on asyncio, as much as the rest of the ask, and nearly all are cancelled.
Asks with the same timeout expire in the order in which they began. So one timer, set for the oldest
ask, serves all of them; an answered ask is removed from the queue.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol

# From this number of queues on, empty queues are dropped before their timers fire.
_MANY = 64

if TYPE_CHECKING:
    from actors.loop._clock import Clock, TimerHandle


class Expiring(Protocol):
    """An object with a deadline."""

    def expire(self) -> None:
        """Handle the expired deadline."""
        ...


class Deadlines:
    """All deadlines of one system, with one queue per distinct timeout."""

    __slots__ = ("_clock", "_most", "_queues")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._most = _MANY
        self._queues: dict[float, _Queue] = {}

    def add(self, waiting: Expiring, seconds: float) -> dict[Expiring, float]:
        """Expire `waiting` in `seconds` (inf: never), unless deleted from the returned dict."""
        if seconds == inf:
            # Return a dict of the caller's own: nothing reads it, and deleting from it is harmless.
            return {}
        queue = self._queues.get(seconds)
        if queue is None:
            if len(self._queues) >= self._most:
                self._drop_empty()
            queue = self._queues[seconds] = _Queue()
            queue.timer = self._clock.call_later(seconds, self._expire, seconds, queue)
        queue.waiting[waiting] = self._clock.time() + seconds
        return queue.waiting

    def _expire(self, seconds: float, queue: _Queue) -> None:
        now = self._clock.time()
        # Take all due entries in one pass: looking up the first one each time would skip the same
        # deleted entries again and again.
        due = []
        for waiting, when in queue.waiting.items():
            if when > now:
                break
            due.append(waiting)
        for waiting in due:
            if queue.waiting.pop(waiting, None) is not None:
                waiting.expire()
        if queue.waiting:
            queue.timer = self._clock.call_later(
                next(iter(queue.waiting.values())) - now, self._expire, seconds, queue
            )
        else:
            del self._queues[seconds]

    def _drop_empty(self) -> None:
        """Drop the queues without entries, and their timers.

        Asks with a fixed end time each have a timeout of their own, and leave an empty queue
        behind.
        """
        for seconds, queue in tuple(self._queues.items()):
            if not queue.waiting:
                queue.timer.cancel()
                del self._queues[seconds]
        # Scan again only when the number of queues has doubled, so that scans are rare.
        self._most = max(_MANY, 2 * len(self._queues))

    def close(self) -> None:
        """Cancel all timers; nothing expires any more."""
        for queue in self._queues.values():
            queue.timer.cancel()
        self._queues.clear()


class _Queue:
    __slots__ = ("timer", "waiting")

    timer: TimerHandle

    def __init__(self) -> None:
        self.waiting: dict[Expiring, float] = {}
