"""Tasks that have become ready to fetch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from ks_actors.runtime import messages as m

if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from collections.abc import Set as AbstractSet

    from actors import Timers
    from ks_actors.records import TaskId, TopicPartition

_TOGETHER_S: Final = 0.01


@final
class NewTasks:
    """Collect tasks that become ready within 10 ms.

    Each assignment of a fetcher goes through all partitions, so one serves them all. The first task
    does not wait, and no task waits when no other is pending.
    """

    def __init__(self) -> None:
        self._ready: dict[TaskId, Mapping[TopicPartition, int]] = {}

    def come(self, ready: m.TaskReady, pending: AbstractSet[TaskId], timers: Timers[Any]) -> bool:
        """Add one of the `pending` tasks; return whether to begin at once.

        Otherwise, FetchNew arrives in time.
        """
        self._ready[ready.task] = ready.positions
        # The last one that was waited for: no timer is needed.
        if pending <= self._ready.keys():
            return True
        if "new" in timers:
            return False
        timers.once("new", _TOGETHER_S, m.FetchNew())
        return True

    def take(self, tasks: Container[TaskId], pending: set[TaskId]) -> dict[TopicPartition, int]:
        """Return the positions of the ready tasks in `tasks`, and take these out of `pending`."""
        ready, self._ready = self._ready, {}
        pending.difference_update(ready)
        return {
            partition: at
            for task, positions in ready.items()
            if task in tasks
            for partition, at in positions.items()
        }
