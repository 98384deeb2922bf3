"""The history of commits."""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Final, final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_KEPT: Final = 200
_MINUTE_MS: Final = 60_000
_MINUTES: Final = 60
_SLOWEST: Final = 10


class CommitRun(msgspec.Struct, frozen=True):
    """A commit: its end by the wall clock, and its duration in ms, as a whole and by phase.

    The phases, in order: `drain` (waits for calls in flight), `pause` (of workers), `freeze`
    (tasks' states), `changelogs` (changes of stores), `flush` (output is written), `transaction` or
    `offsets`, and `stores`. A failed commit has the phases up to its failure, and its `error`.

    `processed` counts the records since the commit before. `records` and `bytes` (approximate, of
    keys and values) are those that were written, changelogs included. `left_out` counts the tasks
    with work that the next commit has to take.
    """

    at_ms: int
    took_ms: float
    phases: dict[str, float]
    reason: str
    tasks: int
    left_out: int
    processed: int
    records: int
    bytes: int
    error: str | None


@final
class CommitClock:
    """Measure the phases of one commit."""

    __slots__ = ("_at", "_began", "bytes", "phases", "reason", "records")

    def __init__(self, reason: str) -> None:
        # Behind a colon there may be the text of an error of users' code.
        self.reason: str = reason.partition(":")[0]
        self.phases: dict[str, float] = {}
        self.records: int = 0
        self.bytes: int = 0
        self._began: float = perf_counter()
        self._at: float = self._began

    def end(self, phase: str) -> None:
        """Note the end of a phase, which began when the phase before it ended."""
        now = perf_counter()
        self.phases[phase] = (now - self._at) * 1000
        self._at = now

    def wrote(self, written: Iterable[tuple[int, int, float]]) -> None:
        """Note the output: end, records and bytes of each partition."""
        for _, records, size in written:
            self.records += records
            self.bytes += int(size)

    @property
    def took_ms(self) -> float:
        """The time in ms since the commit began."""
        return (perf_counter() - self._began) * 1000


@final
class CommitHistory:
    """The last 200 commits that were not empty, and the slowest of each minute of the last hour."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._runs: deque[CommitRun] = deque(maxlen=_KEPT)
        # The slowest commit of each minute, by the number of the minute, the oldest first.
        self._slowest: dict[int, CommitRun] = {}
        self._processed: int = 0

    def note(
        self,
        clock: CommitClock,
        *,
        processed: int,
        tasks: int,
        left_out: int,
        error: Exception | None = None,
    ) -> CommitRun:
        """Note a commit that has ended; `processed` counts all records of the instance so far."""
        now = self._now()
        before = self._processed
        if error is None:
            self._processed = processed
        run = CommitRun(
            now,
            clock.took_ms,
            clock.phases,
            clock.reason,
            tasks,
            left_out,
            processed - before,
            clock.records,
            clock.bytes,
            None if error is None else type(error).__name__,
        )
        self._runs.append(run)
        minute = now // _MINUTE_MS
        slowest = self._slowest.get(minute)
        if slowest is None or run.took_ms > slowest.took_ms:
            self._slowest[minute] = run
        if slowest is None:
            self._forget(minute)
        return run

    def _forget(self, minute: int) -> None:
        for old in [each for each in self._slowest if each <= minute - _MINUTES]:
            del self._slowest[old]

    def latest(self) -> list[CommitRun]:
        """Return the commits, the newest first."""
        return list(reversed(self._runs))

    def slowest(self) -> list[CommitRun]:
        """Return up to 10 commits of the last hour, the slowest first, one for each minute."""
        self._forget(self._now() // _MINUTE_MS)
        found = sorted(self._slowest.values(), key=lambda run: -run.took_ms)
        return found[:_SLOWEST]
