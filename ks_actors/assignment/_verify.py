"""Verification of an assignor's answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ks_actors.assignment._facts import MemberTasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.assignment._facts import GroupState
    from ks_actors.records import TaskId

_SHOWN = 10


def verify(answer: Any, group: GroupState) -> str:
    """Return the rules that an assignor's answer breaks; empty for a valid answer."""
    if not isinstance(answer, Mapping):
        return f"its answer is {type(answer).__name__}, and no mapping from members to MemberTasks"
    strange = [
        f"{member!r} has {type(each).__name__}, and no MemberTasks"
        for member, each in answer.items()
        if not isinstance(each, MemberTasks)
    ]
    wrong = strange or [
        *_wrong_members(answer, group),
        *_wrong_active(answer, group),
        *_wrong_standbys(answer, group),
    ]
    more = "" if len(wrong) <= _SHOWN else f" and {len(wrong) - _SHOWN} more"
    return ", ".join(wrong[:_SHOWN]) + more


def _wrong_members(answer: Mapping[str, MemberTasks], group: GroupState) -> Iterator[str]:
    for member, tasks in answer.items():
        if member not in group.members:
            yield f"{member} is not a member"
            continue
        for task in (*tasks.active, *tasks.standbys):
            facts = group.tasks.get(task)
            if facts is not None and member not in facts.members:
                yield f"{task} is not in {member}'s version of the topology"


def _wrong_active(answer: Mapping[str, MemberTasks], group: GroupState) -> Iterator[str]:
    given: Counter[TaskId] = Counter(task for each in answer.values() for task in each.active)
    for task in group.tasks:
        if given[task] != 1:
            yield f"{task} goes to {given[task]} members"
    yield from (f"{task} is not a task" for task in given if task not in group.tasks)


def _wrong_standbys(answer: Mapping[str, MemberTasks], group: GroupState) -> Iterator[str]:
    for member, tasks in answer.items():
        for task in tasks.standbys:
            if task not in group.tasks:
                yield f"standby {task} is not a task"
            elif not group.tasks[task].stateful:
                yield f"standby {task} is without state"
            elif task in tasks.active:
                yield f"{task} is active and a standby on {member}"
