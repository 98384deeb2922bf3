"""Who gets which task."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ks_actors.records import TaskId

Warm: TypeAlias = "Mapping[str, Mapping[TaskId, int]]"
"""What members have of the state of tasks: by member and task, the sum of the offsets up to which its changelogs are there."""

AssignTasks: TypeAlias = "Callable[[Mapping[str, Collection[TaskId]], Collection[TaskId], Warm], Mapping[str, Collection[TaskId]]]"
"""Say who should have which task: given what each member owns, all tasks, and what state members have. Every task goes to one of the members."""

_NOTHING: Mapping[TaskId, int] = {}


def assign_sticky(owned: Mapping[str, Collection[TaskId]], tasks: Collection[TaskId], warm: Warm | None = None) -> dict[str, tuple[TaskId, ...]]:
    """Return the tasks that each member of `owned` should have: as even as it can be, and of all ways to do that one that moves the fewest tasks.

    No member has two tasks more than another one. A task that nobody has goes to a member that has its state, `warm`, when there is one with room;
    of several, to the one that has most of it. A member that has to give some up gives up those for which that is so, and of these, as of the others,
    where it has most of one subtopology. Any other task goes where there are fewest of its subtopology; so without owners each subtopology is spread
    evenly, too. What two members own stays with the first one. The same input gives the same result, and the result as input gives itself.
    """
    warm = warm or {}
    share, extra = divmod(len(tasks), len(owned))
    kept = _owned_once(owned, tasks)
    wanted = {task for member, have in kept.items() if len(have) <= share for task in warm.get(member, _NOTHING)}
    # Those who have the most may keep one more than their share: whatever they would give up had to move.
    for member in sorted(kept, key=lambda member: -len(kept[member])):
        more = min(extra, 1, max(0, len(kept[member]) - share))
        extra -= more
        _give_up(kept[member], len(kept[member]) - share - more, wanted)
    seats = _Seats(kept, share, extra)
    left = seats.fill_warm(sorted(set(tasks).difference(*kept.values())), warm)
    seats.fill(left)
    return {member: tuple(sorted(have)) for member, have in kept.items()}


def _owned_once(owned: Mapping[str, Collection[TaskId]], tasks: Collection[TaskId]) -> dict[str, list[TaskId]]:
    """Return who owns what of `tasks`, without what an earlier member owns already."""
    left = set(tasks)
    kept: dict[str, list[TaskId]] = {}
    for member in sorted(owned):
        kept[member] = sorted(left.intersection(owned[member]))
        left.difference_update(kept[member])
    return kept


def _give_up(tasks: list[TaskId], count: int, wanted: Collection[TaskId]) -> None:
    """Take `count` tasks away, those first that others have the state of, each time the last one of the subtopology that has most."""
    for _ in range(count):
        sizes = Counter(task.subtopology for task in tasks)
        tasks.remove(max(tasks, key=lambda task: (task in wanted, sizes[task.subtopology], task)))


class _Seats:
    """The room that members have: for `share` tasks each, and `extra` of them for one more."""

    def __init__(self, kept: dict[str, list[TaskId]], share: int, extra: int) -> None:
        self._kept = kept
        self._share = share
        self._extra = extra

    def _has_room(self, member: str) -> bool:
        return len(self._kept[member]) < self._share + (self._extra > 0)

    def _give(self, task: TaskId, member: str) -> None:
        self._extra -= len(self._kept[member]) == self._share
        self._kept[member].append(task)

    def fill_warm(self, tasks: Collection[TaskId], warm: Warm) -> list[TaskId]:
        """Give tasks to members that have their state, those with the fewest of them first; return the tasks for which none has room."""
        holders = {
            task: sorted((member for member in self._kept if task in warm.get(member, _NOTHING)), key=lambda member: (-warm[member][task], member))
            for task in tasks
        }
        given: dict[TaskId, str] = {}
        for task in sorted(tasks, key=lambda task: (len(holders[task]), task)):
            self._place(task, holders, given, set())
        return [task for task in tasks if task not in given]

    def _place(self, task: TaskId, holders: Mapping[TaskId, list[str]], given: dict[TaskId, str], asked: set[str]) -> bool:
        """Give a task to one of its holders; one that has no room may pass on another one, to another holder of that."""
        for member in holders[task]:
            if self._has_room(member):
                self._give(task, member)
                given[task] = member
                return True
        for member in holders[task]:
            if member in asked:
                continue
            asked.add(member)
            for other in [each for each, holder in given.items() if holder == member]:
                if self._place(other, {**holders, other: [each for each in holders[other] if each != member]}, given, asked):
                    have = self._kept[member]
                    have[have.index(other)] = task
                    given[task] = member
                    return True
        return False

    def fill(self, tasks: Collection[TaskId]) -> None:
        """Give tasks to whoever has room, where there are fewest of their subtopologies."""
        spread = {member: Counter(task.subtopology for task in have) for member, have in self._kept.items()}
        for task in tasks:
            room = [member for member in self._kept if self._has_room(member)]
            member = min(room, key=lambda member: (spread[member][task.subtopology], len(self._kept[member])))
            self._give(task, member)
            spread[member][task.subtopology] += 1
