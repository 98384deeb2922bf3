"""The poller: fetching and group membership."""

from ks_actors.runtime.input._assignment_check import AssignmentCheck
from ks_actors.runtime.input._dead_transactions import end_transactions_of, nothing_to_end
from ks_actors.runtime.input._input_figures import InputFigures
from ks_actors.runtime.input._membership import GroupView
from ks_actors.runtime.input._pattern_watch import pattern_watch
from ks_actors.runtime.input._poller import POLLER_MAILBOX, Poller
from ks_actors.runtime.input._poller_status import PollerStatus
from ks_actors.runtime.input._start_policy import FROM_BEGIN, StartPolicy
from ks_actors.runtime.input._start_positions import missing_sources
from ks_actors.runtime.input._topic_watch import topic_watch

__all__ = [
    "FROM_BEGIN",
    "POLLER_MAILBOX",
    "AssignmentCheck",
    "GroupView",
    "InputFigures",
    "Poller",
    "PollerStatus",
    "StartPolicy",
    "end_transactions_of",
    "missing_sources",
    "nothing_to_end",
    "pattern_watch",
    "topic_watch",
]
