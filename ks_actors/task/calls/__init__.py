"""Long calls: async, blocking and batch functions."""

from ks_actors.task.calls._async_node import where
from ks_actors.task.calls._batch_node import in_flight_node
from ks_actors.task.calls._blocking import blocking, check_threads, needs_thread, whole_commits
from ks_actors.task.calls._drain import Draining
from ks_actors.task.calls._in_flight import Call, InFlight
from ks_actors.task.calls._thread_guard import ThreadGuard
from ks_actors.task.calls._turnover import Emptied, Holder, Turnover

__all__ = [
    "Call",
    "Draining",
    "Emptied",
    "Holder",
    "InFlight",
    "ThreadGuard",
    "Turnover",
    "blocking",
    "check_threads",
    "in_flight_node",
    "needs_thread",
    "where",
    "whole_commits",
]
