"""How long to wait before something is tried again that has failed."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from ks_actors._errors import StreamsError

if TYPE_CHECKING:
    from ks_actors.records import TaskId

_FIRST_SECONDS = 0.1
_LONGEST_SECONDS = 5.0
_LIVED_SECONDS = 60.0


class RetryBackoff:
    """The rests between attempts: none before the first, then longer and longer ones, for what has failed at once may fail again.

    They begin from none again after a success, or when the last attempt has held for a minute.
    """

    def __init__(self) -> None:
        self._next: float = 0.0
        self._tried: float = -inf

    def succeeded(self) -> None:
        """Note that something came of the last attempt."""
        self._next = 0.0

    def next(self, now: float) -> float:
        """Return how many seconds to rest from `now` on before the next attempt."""
        rest = 0.0 if now - self._tried >= _LIVED_SECONDS else self._next
        self._next = min(max(_FIRST_SECONDS, 2 * rest), _LONGEST_SECONDS)
        self._tried = now + rest
        return rest


class TaskBackoff:
    """The rests before tasks are processed again that have failed: `RetryBackoff` per partition, as long as no later record of it is what fails."""

    def __init__(self) -> None:
        self._failed: dict[tuple[TaskId | None, str | None, int | None], tuple[int, RetryBackoff]] = {}

    def next(self, task: TaskId | None, cause: Exception, now: float) -> float:
        """Return how many seconds a task is to rest that fails by `cause`; None for a task that is not known."""
        at = cause if isinstance(cause, StreamsError) else StreamsError("")
        place = (task, at.topic, at.partition)
        offset = -1 if at.offset is None else at.offset
        furthest, rests = self._failed.get(place, (offset, RetryBackoff()))
        if offset > furthest:
            furthest, rests = offset, RetryBackoff()
        self._failed[place] = furthest, rests
        return rests.next(now)

    def forget(self) -> None:
        """Begin from none again: the tasks are others."""
        self._failed.clear()
