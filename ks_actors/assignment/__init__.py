"""Grouping of partitions into tasks, assignment of tasks to members, and the members' user data.

The log calls `GroupAssignor` on the group's leader. Its parts, the partition grouper and the task
assignor, may be a user's. Only this package reads and writes the user data of members and
assignments.
"""

from __future__ import annotations

from ks_actors.assignment._assignor import GroupAssignor
from ks_actors.assignment._facts import (
    GroupState,
    MemberFacts,
    MemberTasks,
    TaskAssignor,
    TaskFacts,
)
from ks_actors.assignment._grouper import (
    GrouperFailed,
    Grouping,
    PartitionGrouper,
    Tasks,
    check_copartitioning,
    group_partitions,
)
from ks_actors.assignment._info import (
    HostedTasks,
    MemberState,
    MemberTraits,
    TaskList,
    TopologyInfo,
    decode_list,
    decode_member,
    decode_processes,
    decode_standbys,
    decode_tasks,
    encode_kept,
    encode_member,
    encode_problem,
    encode_tasks,
    pack_hosts,
)
from ks_actors.assignment._standbys import assign_standbys
from ks_actors.assignment._sticky import Warm, assign_sticky
from ks_actors.assignment._sticky_assignor import StickyTaskAssignor

__all__ = [
    "GroupAssignor",
    "GroupState",
    "GrouperFailed",
    "Grouping",
    "HostedTasks",
    "MemberFacts",
    "MemberState",
    "MemberTasks",
    "MemberTraits",
    "PartitionGrouper",
    "StickyTaskAssignor",
    "TaskAssignor",
    "TaskFacts",
    "TaskList",
    "Tasks",
    "TopologyInfo",
    "Warm",
    "assign_standbys",
    "assign_sticky",
    "check_copartitioning",
    "decode_list",
    "decode_member",
    "decode_processes",
    "decode_standbys",
    "decode_tasks",
    "encode_kept",
    "encode_member",
    "encode_problem",
    "encode_tasks",
    "group_partitions",
    "pack_hosts",
]
