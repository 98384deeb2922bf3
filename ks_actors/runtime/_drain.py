"""The tasks that a commit waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ks_actors.runtime._committing import TasksBroken

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from actors import Reply
    from ks_actors._task_id import TaskId
    from ks_actors.runtime._task import Task


@final
class Drain:
    """Answer a commit when no task has anything in hand any more; without such tasks at once, whatever workers are at.

    `touched` are the tasks that were processed since the last commit, `leased` those that a worker has.
    """

    def __init__(self, touched: Mapping[TaskId, Task], leased: Container[TaskId]) -> None:
        self.under_way: bool = False
        self._touched = touched
        self._leased = leased
        self._reply: Reply[None] | None = None
        self._waits_for: set[TaskId] = set()
        self._unfed: dict[TaskId, None] = {}

    def begin(self, reply: Reply[None]) -> None:
        """Wait for what the tasks that were touched have in hand. They are to be looked at then."""
        self.under_way, self._reply = True, reply
        self._waits_for = {task.id for task in self._touched.values() if task.drains and self._has_something(task)}
        self.answer()

    def looked_at(self, task: Task) -> None:
        """Note what a task has in hand now, which is given nothing new until the `end`."""
        if self.under_way and task.drains:
            self._unfed[task.id] = None
            if task.id in self._waits_for and not self._has_something(task):
                self.forget(task.id)

    def _has_something(self, task: Task) -> bool:
        return not task.broken and (not task.drained or task.id in self._leased)

    def forget(self, task: TaskId) -> None:
        """Wait for a task no more."""
        if task in self._waits_for:
            self._waits_for.discard(task)
            if not self._waits_for:
                self.answer()

    def answer(self) -> None:
        """Answer if there is nothing to wait for, or something is broken: nobody may be left to hand results on before that is rolled back."""
        if (reply := self._reply) is None:
            return
        if not self._waits_for:
            self._reply = None
            reply.tell(None)
        elif broken := [task.id for task in self._touched.values() if task.broken]:
            self._reply = None
            reply.fail(TasksBroken.of(broken))

    def end(self) -> Iterable[TaskId]:
        """Return the tasks that may be fed again."""
        self.under_way, self._reply = False, None
        self._waits_for.clear()
        unfed, self._unfed = self._unfed, {}
        return unfed
