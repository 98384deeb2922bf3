"""Assignment of tasks to members."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ks_actors.records import TaskId

Warm: TypeAlias = "Mapping[str, Mapping[TaskId, int]]"
"""By member and task, the sum of the changelog offsets that the member's state has reached."""

_NOTHING: Mapping[TaskId, int] = {}


def assign_sticky(
    owned: Mapping[str, Collection[TaskId]], tasks: Collection[TaskId], warm: Warm | None = None
) -> dict[str, tuple[TaskId, ...]]:
    """Return the tasks for each member of `owned`: as even as possible, with the fewest moves.

    The numbers of tasks of two members differ by at most one. An overloaded member first gives up
    tasks whose state is on a member with room, then other tasks; within each group it starts with
    its largest subtopology. An unowned task goes to a member with room that has the task's state
    (`warm`); among several, to the member with most of that state. Any other task goes to the
    member with the fewest tasks of its subtopology. So without owners, each subtopology is spread
    evenly, too. A task with two owners stays with the first owner. The same input gives the same
    result, and the result as input gives the same result again.
    """
    warm = warm or {}
    share, extra = divmod(len(tasks), len(owned))
    kept = _owned_once(owned, tasks)
    wanted = {
        task
        for member, have in kept.items()
        if len(have) <= share
        for task in warm.get(member, _NOTHING)
    }
    # The members with the most tasks may keep one task above the share, to save a move.
    for member in sorted(kept, key=lambda member: -len(kept[member])):
        more = min(extra, 1, max(0, len(kept[member]) - share))
        extra -= more
        _give_up(kept[member], len(kept[member]) - share - more, wanted)
    seats = _Seats(kept, share, extra)
    left = seats.fill_warm(sorted(set(tasks).difference(*kept.values())), warm)
    seats.fill(left)
    return {member: tuple(sorted(have)) for member, have in kept.items()}


def _owned_once(
    owned: Mapping[str, Collection[TaskId]], tasks: Collection[TaskId]
) -> dict[str, list[TaskId]]:
    """Return the tasks that each member owns, without tasks that an earlier member owns, too."""
    left = set(tasks)
    kept: dict[str, list[TaskId]] = {}
    for member in sorted(owned):
        kept[member] = sorted(left.intersection(owned[member]))
        left.difference_update(kept[member])
    return kept


def _give_up(tasks: list[TaskId], count: int, wanted: Collection[TaskId]) -> None:
    """Remove `count` tasks, first those in `wanted`, then those of the largest subtopology."""
    for _ in range(count):
        sizes = Counter(task.subtopology for task in tasks)
        tasks.remove(max(tasks, key=lambda task: (task in wanted, sizes[task.subtopology], task)))


class _Seats:
    """The free places of members: `share` tasks each, and one more for `extra` of them."""

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
        """Give tasks to members with their state, starting with tasks that the fewest members have.

        Return the tasks for which no member with their state has room.
        """
        holders = {
            task: sorted(
                (member for member in self._kept if task in warm.get(member, _NOTHING)),
                key=lambda member: (-warm[member][task], member),
            )
            for task in tasks
        }
        given: dict[TaskId, str] = {}
        for task in sorted(tasks, key=lambda task: (len(holders[task]), task)):
            self._place(task, holders, given, set())
        return [task for task in tasks if task not in given]

    def _place(
        self,
        task: TaskId,
        holders: Mapping[TaskId, list[str]],
        given: dict[TaskId, str],
        asked: set[str],
    ) -> bool:
        """Give a task to a member with its state.

        A full member may pass one of its tasks on to another member with that task's state.
        """
        for member in holders[task]:
            if self._has_room(member):
                self._give(task, member)
                given[task] = member
                return True
        # An augmenting path, as in bipartite matching; `asked` bounds the search.
        for member in holders[task]:
            if member in asked:
                continue
            asked.add(member)
            for other in [each for each, holder in given.items() if holder == member]:
                if self._place(
                    other,
                    {**holders, other: [each for each in holders[other] if each != member]},
                    given,
                    asked,
                ):
                    have = self._kept[member]
                    have[have.index(other)] = task
                    given[task] = member
                    return True
        return False

    def fill(self, tasks: Collection[TaskId]) -> None:
        """Give each task to the member with room that has the fewest tasks of its subtopology."""
        spread = {
            member: Counter(task.subtopology for task in have)
            for member, have in self._kept.items()
        }
        for task in tasks:
            room = [member for member in self._kept if self._has_room(member)]
            member = min(
                room, key=lambda member: (spread[member][task.subtopology], len(self._kept[member]))
            )
            self._give(task, member)
            spread[member][task.subtopology] += 1
