"""The backoff before a failed attempt is repeated."""

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
    """The pauses between attempts: none before the first attempt, then longer and longer pauses.

    They restart from zero after a success, or when the last attempt has lasted a minute.
    """

    def __init__(self) -> None:
        self._next: float = 0.0
        self._tried: float = -inf

    def succeeded(self) -> None:
        """Record a success of the last attempt."""
        self._next = 0.0

    def next(self, now: float) -> float:
        """Return the pause in seconds from `now` to the next attempt."""
        rest = 0.0 if now - self._tried >= _LIVED_SECONDS else self._next
        self._next = min(max(_FIRST_SECONDS, 2 * rest), _LONGEST_SECONDS)
        self._tried = now + rest
        return rest


class TaskBackoff:
    """The pauses before failed tasks are processed again.

    It has a `RetryBackoff` per partition, which is reset when a later record fails.
    """

    def __init__(self) -> None:
        self._failed: dict[
            tuple[TaskId | None, str | None, int | None], tuple[int, RetryBackoff]
        ] = {}

    def next(self, task: TaskId | None, cause: Exception, now: float) -> float:
        """Return the pause (s) of a task that failed because of `cause`; None: an unknown task."""
        at = cause if isinstance(cause, StreamsError) else StreamsError("")
        place = (task, at.topic, at.partition)
        offset = -1 if at.offset is None else at.offset
        furthest, rests = self._failed.get(place, (offset, RetryBackoff()))
        if offset > furthest:
            furthest, rests = offset, RetryBackoff()
        self._failed[place] = furthest, rests
        return rests.next(now)

    def forget(self) -> None:
        """Restart from zero, because the app has other tasks now."""
        self._failed.clear()
