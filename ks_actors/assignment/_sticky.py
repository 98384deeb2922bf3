"""Who gets which task."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ks_actors._task_id import TaskId

AssignTasks: TypeAlias = "Callable[[Mapping[str, Collection[TaskId]], Collection[TaskId]], Mapping[str, Collection[TaskId]]]"
"""Say who should have which task: given what each member owns, and all tasks. Every task goes to one of the members."""


def assign_sticky(owned: Mapping[str, Collection[TaskId]], tasks: Collection[TaskId]) -> dict[str, tuple[TaskId, ...]]:
    """Return the tasks that each member of `owned` should have: as even as it can be, and of all ways to do that one that moves the fewest tasks.

    No member has two tasks more than another one. A member that has to give some up gives them up where it has most of one subtopology, and a task
    goes where there are fewest of its subtopology; so without owners each subtopology is spread evenly, too. What two members own stays with the
    first one. The same input gives the same result, and the result as input gives itself.
    """
    share, extra = divmod(len(tasks), len(owned))
    kept = _owned_once(owned, tasks)
    # Those who have the most may keep one more than their share: whatever they would give up had to move.
    for member in sorted(kept, key=lambda member: -len(kept[member])):
        more = min(extra, 1, max(0, len(kept[member]) - share))
        extra -= more
        _give_up(kept[member], len(kept[member]) - share - more)
    spread = {member: Counter(task.subtopology for task in have) for member, have in kept.items()}
    for task in sorted(set(tasks).difference(*kept.values())):
        room = [member for member, have in kept.items() if len(have) < share + (extra > 0)]
        member = min(room, key=lambda member: (spread[member][task.subtopology], len(kept[member])))
        extra -= len(kept[member]) == share
        kept[member].append(task)
        spread[member][task.subtopology] += 1
    return {member: tuple(sorted(have)) for member, have in kept.items()}


def _owned_once(owned: Mapping[str, Collection[TaskId]], tasks: Collection[TaskId]) -> dict[str, list[TaskId]]:
    """Return who owns what of `tasks`, without what an earlier member owns already."""
    left = set(tasks)
    kept: dict[str, list[TaskId]] = {}
    for member in sorted(owned):
        kept[member] = sorted(left.intersection(owned[member]))
        left.difference_update(kept[member])
    return kept


def _give_up(tasks: list[TaskId], count: int) -> None:
    """Take `count` tasks away, each time the last one of the subtopology that has most."""
    for _ in range(count):
        sizes = Counter(task.subtopology for task in tasks)
        tasks.remove(max(tasks, key=lambda task: (sizes[task.subtopology], task)))
