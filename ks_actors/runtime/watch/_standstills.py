"""The times since when partitions make no progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias, final

from ks_actors.lifecycle import component_log
from ks_actors.task.calls import where

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.watch._partition_state import PartitionState, PartitionStates
    from ks_actors.task.calls import Call

_log = component_log(__name__)
_Key: TypeAlias = "tuple[TaskId, TopicPartition]"
_SLOW_S = 1.0


def warnings_due(waited: float, bound: float) -> int:
    """Return the number of warnings due after `waited` seconds.

    They come after `bound` seconds, twice that, four times that, and so on: a long stall must not
    flood the log.
    """
    count = 0
    while waited >= bound * 2**count:
        count += 1
    return count


@final
class StandstillSince:
    """A partition as it was last seen.

    `still` is when its position last moved. `since` is when its records began to wait; None while
    no records wait.
    """

    __slots__ = ("absent", "furthest", "last", "moves", "since", "still", "warnings")

    def __init__(self, place: PartitionState, now: float) -> None:
        self.furthest: int = -1 if place.position is None else place.position
        self.last: int = self.furthest
        self.absent: float | None = place.absent
        self.still: float = now
        self.since: float | None = None
        # Whether the position has moved between the last two checks, even back after a failure.
        self.moves: bool = False
        self.warnings: int = 0


class Found(NamedTuple):
    """A partition, its standstill, and the text about a long call of its task, if any."""

    place: PartitionState
    still: StandstillSince
    call: str

    def waited(self, now: float) -> float:
        """Return for how many seconds the records of the partition have waited."""
        return 0.0 if self.still.since is None else now - self.still.since


class _UnderWay(NamedTuple):
    call: Call
    since: float
    node: str


@final
class StandstillTimes:
    """Compare the position of each partition with its position at the last check.

    Only a position beyond all earlier positions counts as progress. After a failure, records are
    processed again, perhaps up to the failing record. A position that goes back without a failure
    was reset.
    """

    def __init__(self, partition_states: PartitionStates, bound: float) -> None:
        self._partition_states = partition_states
        self._slow: float = max(bound, 2 * _SLOW_S) / 2
        self._seen: dict[_Key, StandstillSince] = {}
        self._calls: dict[tuple[TaskId, str], _UnderWay] = {}
        self._commits: int = 0

    def forget(self, of: Callable[[TaskId], bool] = lambda _: True) -> None:
        """Start over with some tasks, or all: the wait so far was intended."""
        self._seen = {key: still for key, still in self._seen.items() if not of(key[0])}
        self._calls = {key: call for key, call in self._calls.items() if not of(key[0])}

    def update(self, ends: Mapping[TopicPartition, int], now: float, *, look: bool) -> list[Found]:
        """Return all partitions with their standstills.

        Log partitions that have resumed after a warning. The next call is compared with the last
        `look` of the watchdog only: other calls may come at any moment.
        """
        metrics = self._partition_states.metrics
        if metrics.commits != self._commits:
            # A commit has succeeded since the last look, so the last failure is over.
            self._commits = metrics.commits
            metrics.failures.pop(None, None)
        calls = self._look_at_calls(now)
        before, self._seen = self._seen, {}
        found: list[Found] = []
        for place in self._partition_states.places(ends):
            key = (place.task_id, place.partition)
            slow = calls.get(place.task_id)
            origin = None if slow is None else slow.call.origin
            here = origin is not None and origin[:2] == place.partition
            still = self._seen[key] = before.get(key) or StandstillSince(place, now)
            self._follow(still, place, now, slow if here else None, look=look)
            full = (
                place.buffered > 0
                and place.task is not None
                and slow is not None
                and place.task.draining.room() == 0
            )
            found.append(
                Found(place, still, _slow_text(slow) if slow is not None and (here or full) else "")
            )
        for (task, partition), still in before.items():
            if still.warnings and still.since is not None and (task, partition) not in self._seen:
                _log.info(
                    "%s of task %s has left this instance after it had waited for %.0f s",
                    partition,
                    task,
                    now - still.since,
                )
        return found

    def _look_at_calls(self, now: float) -> dict[TaskId, _UnderWay]:
        """Return the longest-running call of each task, if that call takes long."""
        before, self._calls = self._calls, {}
        slowest: dict[TaskId, _UnderWay] = {}
        for task in self._partition_states.metrics.tasks.values():
            for each in task.async_nodes:
                if (call := each.oldest) is None:
                    continue
                node = each.node
                one = before.get((task.id, node))
                if one is None or one.call is not call:
                    one = _UnderWay(call, now, node)
                self._calls[task.id, node] = one
                if now - one.since >= self._slow and (
                    task.id not in slowest or one.since < slowest[task.id].since
                ):
                    slowest[task.id] = one
        return slowest

    def _follow(
        self,
        still: StandstillSince,
        place: PartitionState,
        now: float,
        call: _UnderWay | None,
        *,
        look: bool,
    ) -> None:
        position = still.last if place.position is None else place.position
        goes_on = self._goes_on(still, place, position)
        moves = position != still.last or (
            place.absent is not None and place.absent != still.absent
        )
        still.moves = moves or (still.moves and not look)
        if look:
            still.last, still.absent = position, place.absent
        if goes_on:
            still.furthest, still.still = position, now
            self._partition_states.metrics.failures.pop(place.task_id, None)
        # Records held by a thread or a call wait as well.
        waits = (
            call is not None
            or place.absent is not None
            or place.buffered > 0
            or (self._unknown(still, place, now) if place.lag is None else place.lag > 0)
        )
        if still.since is not None and (not waits or (goes_on and call is None)):
            if still.warnings:
                _log.info(
                    "%s of task %s continues, after it had waited for %.0f s",
                    place.partition,
                    place.task_id,
                    now - still.since,
                )
            still.since, still.warnings = None, 0
        if waits and still.since is None:
            still.since = (
                call.since
                if call is not None
                else now
                if place.lag is not None or place.buffered
                else still.still
            )

    def _unknown(self, still: StandstillSince, place: PartitionState, now: float) -> bool:
        """Return whether records count as waiting although it is unknown whether there are any.

        Such records count as waiting once the log should have answered.
        """
        return place.task is None or now - still.still >= self._slow * 2

    def _goes_on(self, still: StandstillSince, place: PartitionState, position: int) -> bool:
        if place.absent is not None:
            # A thread has the task: all that is known is whether it is still the same slice.
            return place.absent != still.absent
        failures = self._partition_states.metrics.failures
        return position > still.furthest or (
            position < still.last and not (place.task_id in failures or None in failures)
        )


def _slow_text(slow: _UnderWay) -> str:
    return (
        f"a call of the asynchronous processor {slow.node} has not returned, for {where(slow.call)}"
    )
