"""What an instance makes of its group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors._errors import IllegalGeneration
from ks_actors.assignment import decode_processes, decode_standbys, decode_tasks, encode_member

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ks_actors._task_id import TaskId
    from ks_actors.log import MemberAssignment, Membership
    from ks_actors.log._types import TopicPartition
    from ks_actors.runtime._messages import CommitOffsets


class GroupView:
    """Read assignments, and say what the leader has to know of this instance."""

    def __init__(self, process_id: str, rebalance_timeout_ms: int) -> None:
        self.rebalance_seconds: float = rebalance_timeout_ms / 1000
        self._process_id: str = process_id
        self._counter: int = 0
        self._task_of: dict[TopicPartition, TaskId] = {}
        self._processes: frozenset[str] = frozenset()

    def tasks(self, assignment: MemberAssignment) -> dict[TaskId, tuple[TopicPartition, ...]]:
        """Return the tasks of an assignment with their partitions. Raises what kept the leader from assigning."""
        tasks = decode_tasks(assignment)
        for task, partitions in tasks.items():
            for partition in partitions:
                self._task_of[partition] = task
        return tasks

    def standbys(self, assignment: MemberAssignment) -> frozenset[TaskId]:
        """Return the tasks whose state is to be kept up to date."""
        return decode_standbys(assignment)

    def take_gone(self, assignment: MemberAssignment) -> frozenset[str]:
        """Return the ids of processes that have left the group since the last assignment; to one of those that were there before, and still are."""
        before, self._processes = self._processes, decode_processes(assignment)
        stayed = before & self._processes
        return before - self._processes if stayed and self._process_id == min(stayed) else frozenset()

    def forget(self) -> None:
        """Know of no process: this one was out of the group, as others may be that come back later. They have not gone for that."""
        self._processes = frozenset()

    def task_of(self, partition: TopicPartition) -> TaskId | None:
        """Return the task that reads a partition, as of the last assignment that had it."""
        return self._task_of.get(partition)

    def user_data(self, owned: Iterable[TaskId], generation: int = -1, offsets: Mapping[TaskId, int] | None = None) -> bytes:
        """Return what to tell the leader: the tasks that are here, and how far the state is of those that are not."""
        self._counter += 1
        return encode_member(owned, process_id=self._process_id, counter=self._counter, generation=generation, offsets=offsets)


class OffsetCommits:
    """Commit offsets for the group, outside of transactions.

    While it rebalances there is a moment in which the group has moved on and its members do not know yet where to. What comes then is of tasks that
    the member still has, and all of it is written: it is committed in the next generation, not done again.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._moving: bool = False
        self._patient: bool = True
        self._late: list[tuple[CommitOffsets, Exception]] = []

    async def commit(self, message: CommitOffsets) -> None:
        """Commit, and answer; or keep it for the next generation."""
        try:
            await self._membership.commit(message.offsets)
        except Exception as error:  # noqa: BLE001 - the committer decides what it means
            if self._moving and isinstance(error, IllegalGeneration):
                self._late.append((message, error))
            else:
                message.reply.fail(error)
        else:
            message.reply.tell(None)

    def let_go(self) -> None:
        """Note that the group may go on to the next generation at any time."""
        self._moving = self._patient

    def next_generation(self) -> list[CommitOffsets]:
        """Return what is to be committed now that the generation is known."""
        self._moving = False
        late, self._late = self._late, []
        return [message for message, _ in late]

    def give_up(self) -> None:
        """Tell those who wait that there will be no next generation."""
        self._moving = False
        late, self._late = self._late, []
        for message, error in late:
            message.reply.fail(error)

    def lose_patience(self) -> None:
        """Wait for no generation any more: the group may be waiting for members that have died, one session timeout after the other."""
        self._patient = False
        self.give_up()
