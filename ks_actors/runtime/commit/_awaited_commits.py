"""Commit requests that wait until commits have included all tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ks_actors._errors import TaskMigrated

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ks_actors.records import TaskId
    from ks_actors.runtime.messages import Commit
    from ks_actors.task import Task


@final
class AwaitedCommits:
    """Requests for a commit that has left tasks out.

    Each request is answered when later commits have included those tasks, or when one of the tasks
    fails or leaves. A task that drains asks for a commit when it is at rest. A task that was fed
    after the commit began does not ask, so `commit_again` is called once per request for such
    tasks.
    """

    def __init__(self, commit_again: Callable[[], None]) -> None:
        self._commit_again = commit_again
        self._requests: list[tuple[Commit, set[TaskId]]] = []

    def serve(
        self, request: Commit, left_out: frozenset[TaskId], there: Mapping[TaskId, Task]
    ) -> None:
        """Note that a commit for `request` has included all tasks in `there` but `left_out`.

        Answer the requests that are now served. A request for a rebalance or a handover does not
        wait for tasks left out, because the group waits for its answer. Each of these tasks moves
        later, when it is at rest.
        """
        self.drop(there)
        waiting: list[tuple[Commit, set[TaskId]]] = []
        for one, missing in self._requests:
            before = len(missing)
            missing.intersection_update(left_out)
            if not missing or (one.one_of is not None and len(missing) < before):
                answer(one, None)
            else:
                waiting.append((one, missing))
        self._requests = waiting
        if missing := _waits_for(request, left_out, there):
            self._requests.append((request, missing))
            # Such a task does not drain, so nothing else would ever ask for the commit that
            # includes it.
            if any(there[task].draining.since is None for task in missing & there.keys()):
                self._commit_again()
        else:
            answer(request, None)

    def drop(self, there: Collection[TaskId]) -> None:
        """Fail the requests that wait for tasks that are no longer in `there`.

        No commit of this instance includes those tasks. Call this method when no commit is under
        way. A request for `one_of` some tasks waits for the others, as long as there are any.
        """
        waiting: list[tuple[Commit, set[TaskId]]] = []
        for one, missing in self._requests:
            gone = missing.difference(there)
            if gone and one.one_of is not None:
                missing.difference_update(gone)
                gone = set() if missing else gone
            if gone:
                answer(one, _migrated(gone))
            else:
                waiting.append((one, missing))
        self._requests = waiting

    def fail(self, tasks: Collection[TaskId] | None, error: Exception) -> None:
        """Fail the requests that wait for one of these tasks (None: all requests)."""
        for one, missing in self._requests:
            if tasks is None or not missing.isdisjoint(tasks):
                answer(one, error)
        self._requests = [
            (one, missing)
            for one, missing in self._requests
            if tasks is not None and missing.isdisjoint(tasks)
        ]


def _migrated(tasks: Collection[TaskId]) -> TaskMigrated:
    return TaskMigrated(
        f"task {', '.join(map(str, sorted(tasks)))} was closed before its calls ended, so its work "
        "since the last commit is not committed: its next owner in the group starts from that "
        "commit"
    )


def _waits_for(
    request: Commit, left_out: frozenset[TaskId], there: Collection[TaskId]
) -> set[TaskId]:
    if request.reply is None or request.rebalancing or request.hold:
        return set()
    if request.one_of is None:
        return set(left_out)
    wanted = request.one_of.intersection(there)
    # One of the wanted tasks was included, which is enough for `one_of`.
    return set(wanted) if wanted <= left_out else set()


def answer(request: Commit, error: Exception | None) -> None:
    """Answer a commit request: success, or its error."""
    if request.reply is None:
        return
    if error is None:
        request.reply.tell(None)
    else:
        request.reply.fail(error)
