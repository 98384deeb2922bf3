"""Grouping of partitions into tasks, assignment of tasks to members, and the members' user data.

The log calls `TaskAssignor` on the group's leader. Its parts, the partition grouper and the
assignment, are replaceable functions. Only this package reads and writes the user data of members
and assignments.
"""

from __future__ import annotations

from ks_actors.assignment._assignor import TaskAssignor
from ks_actors.assignment._grouper import (
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
    encode_member,
    encode_problem,
    encode_tasks,
)
from ks_actors.assignment._standbys import assign_standbys
from ks_actors.assignment._sticky import AssignTasks, Warm, assign_sticky

__all__ = [
    "AssignTasks",
    "HostedTasks",
    "MemberState",
    "MemberTraits",
    "PartitionGrouper",
    "TaskAssignor",
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
    "encode_member",
    "encode_problem",
    "encode_tasks",
    "group_partitions",
]
