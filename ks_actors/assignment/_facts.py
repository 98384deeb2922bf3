"""The facts that a task assignor decides by, and its answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

from ks_actors.records import TaskId, TopicPartition


class MemberFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One member of the group, as it has reported itself for this rebalance."""

    process_id: str
    """The id of the instance, which a restart does not change: the state directory keeps it."""
    host: str = ""
    """Members with the same name fail together, as those of one machine; empty: alone."""
    tags: Mapping[str, str] = {}
    """The member's setting `client_tags`."""
    active: frozenset[TaskId] = frozenset()
    """The tasks that the member processes until this assignment."""
    standbys: frozenset[TaskId] = frozenset()
    """The tasks that the member follows as standbys until this assignment."""
    lags: Mapping[TaskId, int] = {}
    """The changelog records that the member's state of a task lacks.

    It has the tasks of which the member has state, active, as a standby, or on its disk. The
    figures are from the beginning of the rebalance. An active task has no lag.
    """


class TaskFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One task of the group."""

    partitions: tuple[TopicPartition, ...]
    """The partitions that the task reads, in order."""
    stateful: bool
    """Whether the task has stores with changelogs, so that it can have standbys."""
    members: frozenset[str]
    """The members whose version of the topology has the task."""


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """The members and tasks of a group at one rebalance."""

    members: Mapping[str, MemberFacts]
    """The members by their ids in the group. An id changes at each start of an instance."""
    tasks: Mapping[TaskId, TaskFacts]
    """The tasks by id, in order."""
    standby_replicas: int = 0
    """The setting `num_standby_replicas` of the leader."""


class MemberTasks(msgspec.Struct, frozen=True):
    """The tasks that an assignor wants a member to have."""

    active: Collection[TaskId] = frozenset()
    """The tasks to process."""
    standbys: Collection[TaskId] = frozenset()
    """The tasks to follow as standbys."""


class TaskAssignor(Protocol):
    """Choose the members that process the tasks of a group and follow them as standbys.

    The group's leader asks its own assignor at each rebalance, and any member may be the leader: so
    all members need the same one. A subclass of Protocol is not needed.
    """

    def assign(self, group: GroupState, /) -> Mapping[str, MemberTasks]:
        """Return the tasks of members by member id; members without tasks may be left out.

        Each task is active on exactly one of its `members`. Only stateful tasks have standbys, on
        others of its `members`. A task on the wrong member moves once its owner has given it up:
        the answer is the aim, and tasks that stay are not interrupted.

        The call may come from a thread of its own, and the whole group waits for it. Equal facts
        should give an equal answer, and an answer as facts should give the same answer again, or
        tasks move at each rebalance. If the call raises, or its answer breaks a rule, all tasks
        stay where they are, and the group asks again later.
        """
        ...
