"""The instance's view of its group: assignments and offset commits."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import TYPE_CHECKING

from ks_actors._counted import counted
from ks_actors._errors import (
    FencedInstanceId,
    IllegalGeneration,
    SerializationError,
    TopologyError,
)
from ks_actors.assignment import (
    HostedTasks,
    MemberTraits,
    decode_list,
    decode_processes,
    decode_standbys,
    decode_tasks,
    encode_member,
)
from ks_actors.lifecycle import component_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from actors import Reply
    from ks_actors.assignment import TaskList, TopologyInfo
    from ks_actors.log import Log, MemberAssignment, Membership
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.runtime.membership._assignment_check import AssignmentCheck
    from ks_actors.runtime.messages import CommitOffsets


# The first version of the user data with the name of the grouper, and with the uncovered queries.
_KNOWS_GROUPERS = _KNOWS_QUERIES = 4
_log = component_log(__name__)


class GroupView:
    """Decode assignments, and encode the instance's data for the leader.

    `left_out` are the subtopologies that this instance does not run, with their queries. `basis` is
    that of this instance's own assignor if the instance is a static member, else None.
    """

    def __init__(
        self,
        process_id: str,
        rebalance_timeout_ms: int,
        assignment_check: AssignmentCheck | None = None,
        traits: MemberTraits | None = None,
        left_out: Mapping[int, str] | None = None,
        basis: Callable[[TopologyInfo, MemberTraits, Mapping[str, int]], int] | None = None,
    ) -> None:
        self.rebalance_seconds: float = rebalance_timeout_ms / 1000
        self._process_id: str = process_id
        self._traits: MemberTraits = traits or MemberTraits()
        self._counter: int = 0
        self._processes: frozenset[str] = frozenset()
        self._assignment_check: AssignmentCheck | None = assignment_check
        # Whether the last assignment does not fit the topology, so the leader must be told of it.
        self.asks_again: bool = False
        # The tasks last reported to the group as being here: it assigns none of them elsewhere.
        self.claimed: frozenset[TaskId] = frozenset()
        # The tasks and standbys of the last assignment.
        self._last: Mapping[TaskId, tuple[TopicPartition, ...]] = {}
        self._standing: frozenset[TaskId] = frozenset()
        # All members with their tasks, as of the last assignment; empty if none has an endpoint.
        self.hosts: tuple[HostedTasks, ...] = ()
        self._told_of_map: bool = False
        self._basis = basis
        # Whether the next assignment is the first since this instance has come to the group.
        self._comes: bool = True
        self._left_out: Mapping[int, str] = left_out or {}
        # The queries of the topology that no member runs, as of the last assignment; None while
        # not known. An instance that runs all queries covers them.
        self._unknown: tuple[str, ...] | None = None if left_out else ()
        self.uncovered: tuple[str, ...] | None = self._unknown

    @property
    def stateful(self) -> frozenset[int]:
        """The subtopologies that have state with changelogs."""
        check = self._assignment_check
        return frozenset() if check is None else check.topology.stateful

    def tasks(self, assignment: MemberAssignment) -> dict[TaskId, tuple[TopicPartition, ...]]:
        """Return the tasks of an assignment with their partitions.

        Raises the error that kept the leader from assigning, or TopologyError.
        """
        told = decode_list(assignment)
        tasks = dict(self._last) if told.kept else decode_tasks(assignment)
        if not told.kept:  # else the assignment has no map
            self.hosts = self._hosts(told)
            self.uncovered = (
                tuple(
                    sorted(
                        {self._left_out[each] for each in told.uncovered if each in self._left_out}
                    )
                )
                if told.version >= _KNOWS_QUERIES
                else self._unknown
            )
        if tasks and self._traits.grouping and told.version < _KNOWS_GROUPERS:
            raise TopologyError(
                "the group's leader runs a release that knows no partition groupers, and this "
                f"member has {self._traits.grouping!r}. Stop all members before the first one with "
                "a grouper starts"
            )
        if self._assignment_check is not None:
            tasks, self.asks_again = self._assignment_check.fit(tasks)
        self._last = tasks
        if not told.kept:
            self._standing = decode_standbys(assignment)
        return tasks

    def _hosts(self, told: TaskList) -> tuple[HostedTasks, ...]:
        """Return the map of all members; warn once of one that cannot be decoded."""
        try:
            return told.hosts
        except SerializationError as error:
            if not self._told_of_map:
                self._told_of_map = True
                _log.warning(
                    "%s. Queries do not find the other instances: app.endpoints() is empty. The "
                    "leader may run another release (its user data has version %d): run the same "
                    "release on all members",
                    error,
                    told.version,
                )
            return ()

    def failure(self, assignment: MemberAssignment) -> tuple[str, bool]:
        """Return why the group keeps its last assignment, and whether to ask for another one.

        The reason is empty if a new assignment was made. One member asks for all.
        """
        told = decode_list(assignment)
        return told.failure, told.asks

    async def refresh_sizes(self, standbys: Iterable[TaskId], log: Log) -> None:
        """Look up the sizes of these tasks' topics where they have grown."""
        if self._assignment_check is not None:
            await self._assignment_check.refresh_sizes(standbys, log)

    async def is_outdated(self, assignment: MemberAssignment, log: Log) -> bool:
        """Return whether a static member has come to an assignment that does not fit it any more.

        The group keeps the assignment of a static member that comes back in time, whatever it
        reports then. Only the first assignment is checked: later ones follow from its reports. An
        earlier release as the leader gives no basis, so nothing tells whether its assignment fits.
        """
        comes, self._comes = self._comes, False
        check = self._assignment_check
        if not comes or self._basis is None or check is None:
            return False
        topology = check.topology
        names = sorted({topic for topics in topology.topics.values() for topic in topics})
        described = await log.describe_topics(names, configs=False)
        counts = {name: topic.partitions for name, topic in described.items()}
        outdated = self._basis(topology, self._traits, counts) != decode_list(assignment).basis
        if outdated:
            _log.info(
                "the group's assignment was made before this static member started, for other "
                "topics, settings or tasks: asking for another one"
            )
        return outdated

    def was_added(self, partition: TopicPartition) -> bool:
        """Return whether a partition was added to its topic while this instance runs."""
        return self._assignment_check is not None and self._assignment_check.was_added(partition)

    @property
    def standbys(self) -> frozenset[TaskId]:
        """The tasks of the last assignment that this instance keeps as standbys."""
        return self._standing

    def changes(
        self, assignment: MemberAssignment, new: Mapping[TaskId, tuple[TopicPartition, ...]]
    ) -> tuple[str, ...]:
        """Return the changes since the last assignment, in words, for the history.

        `new` are the tasks that begin here.
        """
        now, before = decode_processes(assignment), self._processes
        joined, left = len(now - before) if before else 0, len(before - now) if now else 0
        found = {
            f"join: {counted(joined, 'member')} joined": joined,
            f"leave: {counted(left, 'member')} left": left,
            "metadata: partitions were added": any(map(self.was_added, chain(*new.values()))),
            "new topology: the assignment was made for another version": self.asks_again,
        }
        return tuple(text for text, is_so in found.items() if is_so)

    def take_departed(self, assignment: MemberAssignment) -> frozenset[str]:
        """Return the ids of processes that have left the group since the last assignment.

        Only the process with the smallest id of the remaining processes gets the ids; others get
        none.
        """
        before, self._processes = self._processes, decode_processes(assignment)
        stayed = before & self._processes
        return (
            before - self._processes if stayed and self._process_id == min(stayed) else frozenset()
        )

    def forget(self) -> None:
        """Forget all processes: this instance was out of the group.

        Other members may be out of the group too and return later: such members do not count as
        departed. `hosts` stay, so that queries still find the other instances. An old map gives no
        wrong answer: an instance answers only for tasks that it has, and while its own lease holds;
        other attempts are repeated. The next assignment replaces the map.
        """
        self._processes, self._last = frozenset(), {}
        self._comes = True
        self.uncovered = self._unknown

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics to report to the group; None for the topics reported on joining."""
        return (
            None
            if self._assignment_check is None
            else frozenset(
                topic
                for topics in self._assignment_check.topology.topics.values()
                for topic in topics
            )
        )

    def matched(self, partitions: Iterable[TopicPartition]) -> frozenset[str]:
        """Return the topics that a pattern matches, or has matched since the start.

        These topics may be deleted at any time, or may be deleted already.
        """
        return (
            frozenset()
            if self._assignment_check is None
            else self._assignment_check.matched_of(partitions)
        )

    def user_data(
        self,
        owned: Iterable[TaskId],
        generation: int = -1,
        offsets: Mapping[TaskId, int] | None = None,
    ) -> bytes:
        """Return the user data for the leader: the tasks here, and offsets of other tasks."""
        self._counter += 1
        # Keep the tasks to compare them with the next assignment: some may be lost by then.
        self.claimed = frozenset(owned)
        return encode_member(
            self.claimed,
            process_id=self._process_id,
            counter=self._counter,
            generation=generation,
            offsets=offsets,
            topology=None if self._assignment_check is None else self._assignment_check.topology,
            traits=self._traits,
            ends={task: at for task, at in (offsets or {}).items() if task in self.claimed},
            standbys=self._standing,
        )


class OffsetCommits:
    """Commit offsets for the group, outside of transactions.

    During a rebalance, the group moves on before its members know the next generation. A commit in
    that moment is for tasks that the member still has, with all output written. Repeat such a
    commit in the next generation instead of redoing the work.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._moving: bool = False
        self._waits_for_generation: bool = True
        self._late: list[tuple[CommitOffsets, Exception]] = []
        # One commit at a time: an older position must not follow a newer position.
        self._turn = asyncio.Lock()
        self._call: asyncio.Future[None] | None = None
        # Count the generations that this member has seen, and the losses of its membership.
        self._generation: int = 0
        self._losses: int = 0

    async def commit(self, message: CommitOffsets) -> None:
        """Commit and answer, or keep the commit for the next generation.

        The caller continues meanwhile: group messages may arrive in between.
        """
        async with self._turn:
            while True:
                generation, losses = self._generation, self._losses
                error = await self._try(message)
                if error is None:
                    message.reply.tell(None)
                elif self._moving and isinstance(error, IllegalGeneration):
                    # Not an error yet: the tasks are still here, and the next generation takes the
                    # same offsets.
                    self._late.append((message, error))
                elif (
                    isinstance(error, IllegalGeneration)
                    and self._generation != generation
                    and self._losses == losses
                ):
                    # The next generation has become known meanwhile, and the tasks are still here.
                    continue
                else:
                    message.reply.fail(error)
                return

    async def _try(self, message: CommitOffsets) -> Exception | None:
        losses = self._losses
        call = self._call = asyncio.ensure_future(self._membership.commit(message.offsets))
        try:
            await call
        except asyncio.CancelledError:
            # Unless give_up cancelled the call, the cancellation comes from outside.
            if self._losses == losses:
                raise
            return IllegalGeneration(
                "the membership of the group ended while its offsets were being committed"
            )
        except Exception as error:  # noqa: BLE001 - the committer decides what it means
            return error
        else:
            return None
        finally:
            self._call = None

    def let_go(self) -> None:
        """Note that the group may move on to the next generation at any time."""
        self._moving = self._waits_for_generation

    def next_generation(self) -> list[CommitOffsets]:
        """Return the commits to repeat now that the generation is known."""
        self._moving = False
        self._generation += 1
        late, self._late = self._late, []
        return [message for message, _ in late]

    def give_up(self) -> None:
        """Fail the waiting commits: there will be no next generation.

        Cancel the call to the group that is under way.
        """
        # Count before the cancellation: the count lets `_try` recognize that it was not cancelled
        # from outside.
        self._losses += 1
        self._fail_late()
        if self._call is not None:
            self._call.cancel()

    def stop_waiting(self) -> None:
        """Stop waiting for the next generation, and fail the waiting commits.

        That generation may take long: the group may wait for dead members, one session timeout
        after the other.
        """
        self._waits_for_generation = False
        self._fail_late()

    def _fail_late(self) -> None:
        self._moving = False
        late, self._late = self._late, []
        for message, error in late:
            message.reply.fail(error)


async def answered(reply: Reply[None], work: Callable[[], Awaitable[None]]) -> None:
    """Do some work, and answer the request for it with its result or error."""
    try:
        await work()
    except Exception as error:  # noqa: BLE001 - the asker decides what it means
        reply.fail(error)
    else:
        reply.tell(None)


def fenced_member() -> FencedInstanceId:
    """Return the error of a member whose place in the group another process has taken."""
    return FencedInstanceId(
        "another process with the same group_instance_id has taken this member's place in the "
        "group: give each process an id of its own"
    )
