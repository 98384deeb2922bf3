"""Tasks that continue without a partition because its topic is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from ks_actors.runtime import messages as m

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from actors import Timers
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.input._membership import GroupView

_AGAIN_S: Final = 1.0


@final
class PartialTasks:
    """Note such tasks until the next assignment, which restarts them.

    If the topic exists again by then, they read it. The assignment may name the same partitions as
    the last one, so it alone does not show that there is work to do.
    """

    def __init__(self, group: GroupView) -> None:
        self._group = group
        self._tasks: set[TaskId] = set()

    def drop(self, topics: Collection[str], positions: dict[TopicPartition, int]) -> None:
        """Remove the partitions of deleted topics from `positions`."""
        for partition in [one for one in positions if one.topic in topics]:
            del positions[partition]
            if (task := self._group.task_of(partition)) is not None:
                self._tasks.add(task)

    def begun(
        self,
        tasks: Mapping[TaskId, Sequence[TopicPartition]],
        there: Collection[TopicPartition],
        timers: Timers[Any],
    ) -> None:
        """Note the tasks that begin with only some of their partitions.

        Ask the group again soon, as its leader may not know yet.
        """
        lacking = [
            task
            for task, partitions in tasks.items()
            if any(one not in there for one in partitions)
        ]
        self._tasks.update(lacking)
        if lacking:
            timers.once("lacking", _AGAIN_S, m.ReenterGroup())

    def take(self) -> frozenset[TaskId]:
        """Return the tasks, and forget them."""
        found = frozenset(self._tasks)
        self._tasks.clear()
        return found
