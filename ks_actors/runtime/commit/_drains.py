"""Draining: each task finishes its work in hand before a commit."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, final

from ks_actors._errors import TaskTimeout
from ks_actors.runtime.commit._last_calls import LastCalls
from ks_actors.runtime.commit._states import TasksBroken
from ks_actors.runtime.messages import Commit, DrainStalled
from ks_actors.task import Frozen, contained

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Mapping

    from actors import Ref, Reply
    from ks_actors.log import OffsetAndMetadata
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.messages import CommitterMessage, Drain
    from ks_actors.state import Token
    from ks_actors.task import Task

_GRACE_S: Final = 0.02
# The minimum time to feed a task between two drains, as a fraction of the last drain's time.
_LEAST_FED: Final = 0.5


def undrained(tasks: Collection[Task], seconds: float) -> TaskTimeout:
    """Return the error about tasks whose drains have made no progress for `seconds`."""
    busy = {str(task.id): ", ".join(task.busy_nodes()) for task in tasks if task.in_flight}
    cached = {str(task.id): task.cached_updates for task in tasks if task.cached_updates}
    if threads := [str(task.id) for task in tasks if task.thread_guard.since is not None]:
        return TaskTimeout(
            f"a blocking function of task {', '.join(threads)} has not returned for {seconds:g} s. "
            "If calls may take so long, raise task_timeout_ms; if not, give it a shorter timeout"
        )
    if cached and not busy:
        text = "; ".join(f"task {task} holds {count}" for task, count in cached.items())
        return TaskTimeout(
            f"caches have sent no update for {seconds:g} s and still have some: {text}"
        )
    if not busy:
        return TaskTimeout(
            f"the tasks were not ready for a commit {seconds:g} s after it had begun, though no "
            "task has records in flight: the event loop was blocked, or a worker did not return "
            "its task. Look for functions that do not return, or raise max_drain_ms"
        )
    text = "; ".join(f"task {task} at {nodes}" for task, nodes in busy.items())
    return TaskTimeout(
        f"no call of asynchronous processors has ended for {seconds:g} s, and a commit waits for "
        f"{text}. If a call may take so long, raise max_drain_ms; if not, give it a shorter "
        "timeout_ms"
    )


def _crowded(task: Task) -> bool:
    """Return whether more records wait for room than calls are in flight.

    A task with a single call is never crowded: until that call ends, no other could begin anyway.
    """
    return task.group.buffered > task.in_flight > 1 and task.draining.room() == 0


def output_ids(tasks: Iterable[Task]) -> frozenset[int]:
    """Return the ids under which the output of tasks is kept apart."""
    return frozenset(
        task.draining.output_id for task in tasks if task.draining.output_id is not None
    )


class DrainsStatus(NamedTuple):
    """The drains at one moment.

    Tasks in `draining` get no new records. The commit under way waits for the tasks in `awaited`,
    which is None while no drain is awaited. `last_calls`: the app closes, and no long calls begin.
    """

    draining: frozenset[TaskId]
    awaited: frozenset[TaskId] | None
    last_calls: bool


@final
class Drains:
    """Drain tasks: they finish their work in hand and take nothing new until a commit.

    A commit waits a moment for calls that are about to end, unless the task's calls took longer the
    last time. A task with longer calls is left out of the commit and keeps draining. It asks for a
    commit when it is at rest. A drain fails when none of its work has ended for `longest` seconds,
    or for `blocked` seconds in a thread. A drain that makes progress goes on, however long it
    takes. Commits wait for caches: no call delays them. Before the app closes, drains become
    `calm`: no long calls begin any more.
    """

    def __init__(
        self,
        tasks: Mapping[TaskId, Task],
        touched: Mapping[TaskId, Task],
        leased: Container[TaskId],
        *,
        committer: Callable[[], Ref[CommitterMessage]],
        wake_in: Callable[[str, float], None],
        longest: float,
        blocked: float,
        interval: float,
    ) -> None:
        self._tasks = tasks
        self._touched = touched
        self._leased = leased
        self._committer = committer
        self._wake_in = wake_in
        self._longest: float = longest
        self._blocked: float = blocked
        # The time between the beginnings of two drains: most of the interval, as clocks are not
        # exact. A crowded task is fed for this time.
        self._fed_for: float = 0.9 * interval
        # The drain start of each task, and the drains that are known to have failed.
        self._draining: dict[TaskId, float] = {}
        self._overdue: set[TaskId] = set()
        # The time when a commit froze the tasks. Workers do nothing until it ends, which may take
        # long when the log is unavailable.
        self._frozen_since: float | None = None
        self._fresh: set[TaskId] = set()
        self._asked_for_commit: set[TaskId] = set()
        self._unfed: dict[TaskId, None] = {}
        self._reply: Reply[None] | None = None
        self._waits_for: set[TaskId] = set()
        self._until: float = 0.0
        self._late: bool = False
        # True from the beginning of a commit until its state is frozen.
        self._collecting: bool = False
        # From the answer to the committer until it resumes: no task is leased.
        self.held: bool = False
        self.calm: LastCalls | None = None

    def begin(self, drain: Drain, now: float, suspended: Container[TaskId]) -> None:
        """Drain the touched tasks that are not draining yet.

        Answer when the tasks that the commit waits for are at rest. With `due_only`, skip tasks
        that have not been fed for long enough: long calls must not keep tasks draining all the
        time. Suspended tasks are committed whenever they are at rest.
        """
        # The app closes: from now on, calls that would outlast the close must not begin.
        if drain.calm and self.calm is None:
            self.calm = LastCalls(self._tasks.values(), self._draining)
        self._reply, self._collecting, self._until, self._late = (
            drain.reply,
            True,
            now + _GRACE_S,
            False,
        )
        if not drain.due_only:
            # The caller waits for all tasks: report again the tasks that have failed before.
            self._overdue.clear()
        # Tasks that began to drain for this commit. If that commit fails, only these tasks stop
        # draining: other tasks drain for their own commit.
        self._fresh.clear()
        for task in self._touched.values():
            due = (
                not drain.due_only
                or task.id in suspended
                or task.commit_requested
                or not task.draining.calls
                or self._fed(task, now)
            )
            if due and task.drains and not task.broken and task.draining.since is None:
                self._asked_for_commit.discard(task.id)
                self._overdue.discard(task.id)
                task.draining.since = task.draining.moved = self._draining[task.id] = now
                self._fresh.add(task.id)
        self._waits_for = {
            task_id
            for task_id in self._fresh
            if not (self._at_rest(task := self._touched[task_id]) or task.draining.slow)
        }
        if self._waits_for:
            self._wake_in("grace", _GRACE_S)
        self._wake_at_latest(now)
        self.answer()

    def status(self) -> DrainsStatus:
        """Return the tasks that drain, and those that the commit waits for."""
        return DrainsStatus(
            frozenset(task.id for task in self._tasks.values() if self.under_way(task)),
            None if self._reply is None else frozenset(self._waits_for),
            self.calm is not None,
        )

    def under_way(self, task: Task) -> bool:
        """Return whether a task must be given nothing new.

        Updates in caches must be complete when they are frozen, whenever they arrived.
        """
        if task.draining.since is not None:
            return True
        if task.draining.calls:
            return self.calm is not None and self.calm.holds(task)
        return self._collecting and task.drains

    def moved(self, tasks: Iterable[Task], now: float) -> None:
        """Note that tasks have handed on results or updates: their deadlines start again."""
        for task in tasks:
            if task.id in self._draining:
                self._overdue.discard(task.id)
                task.draining.moved = now

    def note_work(self, task: Task) -> None:
        """Note a task's work in hand.

        If the task is at rest and was left out of a commit, ask for another commit.
        """
        if task.draining.since is None and not (self._collecting or self._waits_for or self.calm):
            return  # as nearly always
        if self.under_way(task):
            self._unfed[task.id] = None
        if self._waits_for and (task.draining.since is None or self._at_rest(task) or task.broken):
            self._stop_waiting_for(task.id)
        if (
            task.draining.since is not None
            and self._at_rest(task)
            and not (self._collecting or task.id in self._asked_for_commit)
        ):
            self._asked_for_commit.add(task.id)
            self._committer().tell(Commit(None, f"task {task.id} is at rest", due_only=True))

    def busy(self, tasks: Iterable[TaskId]) -> frozenset[TaskId]:
        """Return the tasks that have work in hand or uncommitted.

        Broken tasks are left out: they are rolled back anyway.
        """
        there = (self._tasks[task_id] for task_id in tasks if task_id in self._tasks)
        return frozenset(
            task.id
            for task in there
            if not task.broken and (task.commit_needed or not self._at_rest(task))
        )

    def forget(self, task: TaskId) -> None:
        """Forget a task that has left."""
        self._draining.pop(task, None)
        self._overdue.discard(task)
        self._stop_waiting_for(task)

    def tick(self, now: float) -> None:
        """Check for drains that have taken too long."""
        self._late = now >= self._until
        self.answer()
        # A timer may fire a little early by this clock: uvloop's counts whole milliseconds.
        if self._reply is not None and self._waits_for and not self._late:
            self._wake_in("grace", self._until - now)
        # Workers pause for the commit, so no task can finish its work now.
        if self._frozen_since is not None:
            return
        for task_id, since in list(self._draining.items()):
            task = self._tasks.get(task_id)
            if task is None or task.draining.since != since:
                del self._draining[task_id]
            elif now >= self._deadline(task) and self._counts(task):
                self._overdue.add(task_id)
                seconds = self._patience(task)
                if task.draining.calls:
                    # This task fails alone, and the commit takes the others.
                    self._committer().tell(DrainStalled(task_id, since, seconds))
                    self._stop_waiting_for(task_id)
                elif self._reply is not None and task_id in self._waits_for:
                    reply, self._reply = self._reply, None
                    reply.fail(undrained((task,), seconds))
        self._wake_at_latest(now)

    def answer(self) -> None:
        """Answer if there is nothing to wait for, or fail if a task is broken.

        With a broken task, perhaps no worker is left to hand results on: the wait would never end.
        """
        if (reply := self._reply) is None:
            return
        if self._may_continue():
            self._reply, self.held = None, True
            reply.tell(None)
        elif broken := [task.id for task in self._touched.values() if task.broken]:
            self._reply = None
            reply.fail(TasksBroken.of(broken))

    def freeze(self, tasks: Iterable[Task], now: float) -> Frozen:
        """Freeze the tasks at rest, which may then be fed again; leave out other tasks."""
        positions: dict[TopicPartition, OffsetAndMetadata] = {}
        tokens: dict[TaskId, Token] = {}
        taken: dict[TaskId, Task] = {}
        left_out: set[TaskId] = set()
        for task in tasks:
            # Left out, not waited for: one long call must not hold up the commits of all others.
            if not self._take(task, now):
                left_out.add(task.id)
            elif task.commit_needed:
                taken[task.id] = task
                positions.update(at := task.positions())
                if task.stores is not None:
                    tokens[task.id] = task.stores.freeze(
                        contained({partition: one.offset for partition, one in at.items()})
                    )
                # The freeze fixes what is committed: later work belongs to the next commit, even if
                # this commit is still on its way.
                task.commit_needed = task.commit_requested = False
        # Caches may be filled again: later updates belong to the next commit.
        self._collecting, self._frozen_since = False, now
        return Frozen(positions, tokens, taken, frozenset(left_out))

    @property
    def fed_again(self) -> list[TaskId]:
        """The tasks that had to wait with new work until the commit froze them.

        Schedule these tasks at the freeze, not at the end of the commit. Otherwise, tasks that
        receive records meanwhile would always come first.
        """
        return list(self._unfed)

    def _take(self, task: Task, now: float) -> bool:
        draining = task.draining
        if not task.drained:
            # The task is left out, and the next commit will not wait even a moment for its calls.
            draining.slow = draining.slow or draining.since is not None
            return False
        since = draining.since
        if since is not None:
            draining.slow = draining.slow and now - since > _GRACE_S
            draining.since, draining.fed, draining.took = None, now, now - since
            self._draining.pop(task.id, None)
            if self.calm is not None:
                self.calm.note(task)
        return True

    def end(self, now: float, *, failed: bool) -> Iterable[TaskId]:
        """Return the tasks that may be fed again.

        If the commit has `failed`, include the tasks that began to drain for that commit.
        """
        if self._frozen_since is not None:
            # Workers could not drain while frozen, so move the deadlines by that time.
            stood, self._frozen_since = now - self._frozen_since, None
            for task_id in self._draining.keys() & self._tasks.keys():
                self._tasks[task_id].draining.moved += stood
            self._wake_at_latest(now)
        self._reply, self._collecting, self.held = None, False, False
        self._waits_for.clear()
        if failed:
            # The failed commit may have been the answer to their request, so they may ask again.
            self._asked_for_commit.clear()
            for task_id in self._fresh & self._draining.keys() & self._tasks.keys():
                self._tasks[task_id].draining.since = None
        unfed, self._unfed = self._unfed, {}
        return unfed

    def _wake_at_latest(self, now: float) -> None:
        """Schedule a check for the first deadline that still counts.

        A task that was at rest in time may wait long for its commit. By then its deadline has
        passed, and a check scheduled for that deadline would repeat at once, without end.
        """
        if self._frozen_since is not None:
            return
        first = inf
        for task_id in self._draining.keys() & self._tasks.keys():
            deadline = self._deadline(task := self._tasks[task_id])
            if deadline < first and (now < deadline or self._counts(task)):
                first = deadline
        if first < inf:
            self._wake_in("drains", first - now)

    def _patience(self, task: Task) -> float:
        return self._blocked if task.blocking else self._longest

    def _deadline(self, task: Task) -> float:
        # A pause before a retry is not a long call.
        moved = max(task.draining.moved, task.draining.retries_at)
        return moved + self._patience(task)

    def _counts(self, task: Task) -> bool:
        return task.id not in self._overdue and not self._at_rest(task)

    def _fed(self, task: Task, now: float) -> bool:
        """Return whether the task has taken records for long enough.

        A drain costs throughput only when the calls are too few for the records.
        """
        enough, took = self._fed_for, task.draining.took
        if not _crowded(task):
            # Count the interval from the beginning of the last drain, as the timer does. If it
            # counted from the end of the drain, the timer would come too early, and every second
            # commit would skip the task.
            enough = min(enough, max(enough - took, _LEAST_FED * took))
        return now - task.draining.fed >= enough

    def _at_rest(self, task: Task) -> bool:
        return task.drained and task.id not in self._leased

    def _stop_waiting_for(self, task: TaskId) -> None:
        if task in self._waits_for:
            self._waits_for.discard(task)
            if self._may_continue():
                self.answer()

    def _may_continue(self) -> bool:
        """Return whether the commit continues.

        The commit continues when it waits for nothing more, or only for calls whose grace period is
        over.
        """
        return not self._waits_for or (
            self._late and all(self._tasks[task_id].draining.calls for task_id in self._waits_for)
        )
