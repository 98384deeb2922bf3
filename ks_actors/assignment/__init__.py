"""Which partitions make up a task, who gets which task, and what members tell each other about it.

`TaskAssignor` is what the log calls on the group's leader. The rest are its parts: partition grouper and assignment are functions that can be
replaced, and the user data of members and assignments is read and written here alone.
"""

from __future__ import annotations

from ks_actors.assignment._assignor import TaskAssignor
from ks_actors.assignment._grouper import PartitionGrouper, Tasks, check_copartitioning, group_partitions
from ks_actors.assignment._info import (
    MemberState,
    TopologyInfo,
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
    "MemberState",
    "PartitionGrouper",
    "TaskAssignor",
    "Tasks",
    "TopologyInfo",
    "Warm",
    "assign_standbys",
    "assign_sticky",
    "check_copartitioning",
    "decode_member",
    "decode_processes",
    "decode_standbys",
    "decode_tasks",
    "encode_member",
    "encode_problem",
    "encode_tasks",
    "group_partitions",
]
