"""Assignment of standbys to members."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ks_actors.assignment._sticky import Warm
    from ks_actors.records import TaskId


def assign_standbys(
    active: Mapping[str, Collection[TaskId]],
    stateful: Collection[TaskId],
    replicas: int,
    warm: Warm,
    hosts: Mapping[str, str] | None = None,
) -> dict[str, tuple[TaskId, ...]]:
    """Return the standbys of each member of `active`, besides the tasks that it processes.

    Each of the `stateful` tasks has `replicas` standbys, or one on every other member if there are
    fewer members; none is on the task's own member. Members with the same name in `hosts` fail
    together (default: each member alone), so a task and its standbys are on different hosts as far
    as there are hosts. Standbys stay where most of the state is,
    according to `warm`. Other standbys go to the member with the least load and, among equals, with
    the fewest standbys of the same owner, so that the tasks of a dead member go to several members.
    Then standbys move until no move would make members more even, counting tasks and standbys. The
    same input gives the same result, and the result as input gives the same result again.
    """
    owner = {task: member for member, tasks in active.items() for task in tasks}
    tasks = sorted(task for task in stateful if task in owner)
    standing = _Standing(
        {member: len(active[member]) for member in sorted(active)}, owner, warm, hosts or {}
    )
    count = min(replicas, len(active) - 1)
    for task in tasks:
        while standing.replicas(task) < count and (member := standing.holder(task)) is not None:
            standing.give(task, member)
    for task in tasks:
        while standing.replicas(task) < count:
            standing.give(task, standing.best(task))
    while standing.move_one():
        pass
    return {member: tuple(sorted(standing.tasks[member])) for member in active}


class _Standing:
    """The standbys of each member during the assignment."""

    def __init__(
        self,
        load: dict[str, int],
        owner: Mapping[TaskId, str],
        warm: Warm,
        hosts: Mapping[str, str],
    ) -> None:
        self.tasks: dict[str, set[TaskId]] = {member: set() for member in load}
        self._load = load
        self._owner = owner
        self._warm = warm
        self._hosts = {member: hosts.get(member, member) for member in load}
        self._standbys: dict[TaskId, set[str]] = {}
        self._pairs: Counter[tuple[str, str]] = Counter()

    def _state(self, member: str, task: TaskId) -> int:
        """Return the state offset of a task at a member; -1 for none."""
        return self._warm.get(member, {}).get(task, -1)

    def _may(self, member: str, task: TaskId) -> bool:
        return self._owner[task] != member and task not in self.tasks[member]

    def replicas(self, task: TaskId) -> int:
        """Return the number of a task's standbys."""
        return len(self._standbys.get(task, ()))

    def _near(self, task: TaskId, member: str, leaver: str | None = None) -> bool:
        """Return whether a copy of the task, besides that of the `leaver`, is on the same host."""
        others = {self._owner[task], *self._standbys.get(task, ())} - {leaver}
        return self._hosts[member] in {self._hosts[other] for other in others}

    def holder(self, task: TaskId) -> str | None:
        """Return the member with most of a task's state for a standby; None if none has any.

        A member on the host of another copy keeps the standby only if all hosts have copies.
        """
        able = [member for member in self._load if self._may(member, task)]
        able = [member for member in able if not self._near(task, member)] or able
        found = [member for member in able if self._state(member, task) >= 0]
        return min(found, key=lambda member: (-self._state(member, task), member), default=None)

    def best(self, task: TaskId) -> str:
        """Return the best member for a new standby of a task."""
        owner = self._owner[task]
        return min(
            (member for member in self._load if self._may(member, task)),
            key=lambda member: (
                self._near(task, member),
                self._load[member],
                self._pairs[owner, member],
                member,
            ),
        )

    def give(self, task: TaskId, member: str) -> None:
        """Give a standby to a member."""
        self.tasks[member].add(task)
        self._standbys.setdefault(task, set()).add(member)
        self._load[member] += 1
        self._pairs[self._owner[task], member] += 1

    def _take(self, task: TaskId, member: str) -> None:
        self.tasks[member].remove(task)
        self._standbys[task].remove(member)
        self._load[member] -= 1
        self._pairs[self._owner[task], member] -= 1

    def move_one(self) -> bool:
        """Move the load of one standby to a member that has at least two fewer.

        May move several standbys along a path of members. Return whether there was a path.
        """
        for source in sorted(self._load, key=lambda member: (-self._load[member], member)):
            found = self._path(source)
            if found:
                for task, giver, taker in found:
                    self._take(task, giver)
                    self.give(task, taker)
                return True
        return False

    def _path(self, source: str) -> list[tuple[TaskId, str, str]]:
        """Return the moves from `source` to a less loaded member, in reverse order.

        The path may lead through other members.
        """
        came: dict[str, tuple[TaskId, str]] = {}
        # Search breadth-first: the shortest path moves the fewest standbys.
        queue = deque([source])
        while queue:
            giver = queue.popleft()
            for taker in sorted(self._load, key=lambda member: (self._load[member], member)):
                if taker == source or taker in came:
                    continue
                task = self._to_move(giver, taker)
                if task is None:
                    continue
                came[taker] = task, giver
                if self._load[taker] <= self._load[source] - 2:
                    return self._steps(came, source, taker)
                queue.append(taker)
        return []

    def _to_move(self, giver: str, taker: str) -> TaskId | None:
        """Return the cheapest standby to move.

        Prefer the most state at the taker; among equals, the least at the giver. A standby does not
        move to the host of another copy.
        """
        return min(
            (
                task
                for task in self.tasks[giver]
                if self._may(taker, task)
                and (not self._near(task, taker, giver) or self._near(task, giver, giver))
            ),
            key=lambda task: (-self._state(taker, task), self._state(giver, task), task),
            default=None,
        )

    def _steps(
        self, came: Mapping[str, tuple[TaskId, str]], source: str, taker: str
    ) -> list[tuple[TaskId, str, str]]:
        steps = []
        while taker != source:
            task, giver = came[taker]
            steps.append((task, giver, taker))
            taker = giver
        return steps
