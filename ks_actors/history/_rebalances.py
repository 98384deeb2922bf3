"""The history of rebalances."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ks_actors.records import TaskId

_KEPT: Final = 200


class Rebalance(msgspec.Struct):
    """A rebalance, as this instance has seen it.

    `causes` are the causes that this instance knows: a rebalance that another member asked for may
    have none. `began_ms` is the time of the wall clock. `assigned_after_ms` is the time until the
    assignment, `running_after_ms` the time until all tasks ran, restores included; None until then,
    and for ever if the next rebalance came first.
    `lost` are the tasks that this instance had to give up, and `closed` says that it closed all of
    them without a commit. `restored_records` and `restored_bytes` (approximate) were read from
    changelogs until all tasks ran, or the next rebalance began.
    """

    began_ms: int
    causes: tuple[str, ...] = ()
    generation: int | None = None
    assigned_after_ms: int | None = None
    running_after_ms: int | None = None
    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    standbys: int = 0
    closed: bool = False
    restored_records: int = 0
    restored_bytes: int = 0


@final
class RebalanceHistory:
    """The last 200 rebalances of an instance."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._runs: deque[Rebalance] = deque(maxlen=_KEPT)
        self.restored: Callable[[], tuple[int, int]] = lambda: (0, 0)
        """Returns the records and bytes that were read from changelogs since the start."""
        self._before: tuple[int, int] = 0, 0
        self._assigned: bool = False

    def begin(self) -> Rebalance:
        """Note that the group rebalances; return the rebalance under way."""
        last = self._runs[-1] if self._runs else None
        # The loss of all tasks and the assignment after it are one rebalance.
        if last is None or last.generation is not None:
            if last is not None and last.running_after_ms is None:
                self._note_restored(last)
            last = Rebalance(self._now())
            self._runs.append(last)
        return last

    def lose(self, tasks: Iterable[TaskId], cause: Exception) -> None:
        """Note that all tasks are closed without a commit, as `cause` says."""
        here = self.begin()
        here.closed = True
        here.lost += _names(tasks)
        here.causes += (f"this instance was out of the group ({type(cause).__name__})",)

    def assign(
        self,
        generation: int,
        gained: Iterable[TaskId],
        lost: Iterable[TaskId],
        standbys: int,
        causes: Iterable[str],
    ) -> None:
        """Note an assignment; tasks that go on here are neither `gained` nor `lost`."""
        here = self.begin()
        here.generation, here.standbys = generation, standbys
        here.assigned_after_ms = self._now() - here.began_ms
        here.gained = _names(gained)
        here.lost += _names(lost)
        here.causes += tuple(causes) if self._assigned else ("this instance started",)
        self._assigned = True
        self._before = self.restored()

    def run(self) -> None:
        """Note that all tasks of the last assignment run."""
        if not self._runs or (here := self._runs[-1]).running_after_ms is not None:
            return
        here.running_after_ms = self._now() - here.began_ms
        self._note_restored(here)

    def _note_restored(self, here: Rebalance) -> None:
        records, size = self.restored()
        here.restored_records = records - self._before[0]
        here.restored_bytes = size - self._before[1]

    def latest(self) -> list[Rebalance]:
        """Return the rebalances, the newest first."""
        return list(reversed(self._runs))


def _names(tasks: Iterable[TaskId]) -> tuple[str, ...]:
    return tuple(map(str, sorted(tasks)))
