"""The member: the tasks that the group assigns to the instance."""

from ks_actors.runtime.membership._assignment_check import (
    AssignmentCheck,
    group_assignor,
    left_out,
)
from ks_actors.runtime.membership._dead_transactions import end_transactions_of, nothing_to_end
from ks_actors.runtime.membership._group_view import GroupView
from ks_actors.runtime.membership._member import (
    MEMBER_MAILBOX,
    Member,
    MemberStatus,
    RebalanceFigures,
)
from ks_actors.runtime.membership._pattern_watch import pattern_watch
from ks_actors.runtime.membership._topic_watch import topic_watch

__all__ = [
    "MEMBER_MAILBOX",
    "AssignmentCheck",
    "GroupView",
    "Member",
    "MemberStatus",
    "RebalanceFigures",
    "end_transactions_of",
    "group_assignor",
    "left_out",
    "nothing_to_end",
    "pattern_watch",
    "topic_watch",
]
