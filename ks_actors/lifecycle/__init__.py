"""Helpers to start, wait, retry, shield and end."""

from ks_actors.lifecycle._admission import admitted
from ks_actors.lifecycle._attempt import try_step
from ks_actors.lifecycle._background import in_background
from ks_actors.lifecycle._backoff import RetryBackoff, TaskBackoff
from ks_actors.lifecycle._clock import elapsed_time, steady_time, wall_time, work_time
from ks_actors.lifecycle._closing import CALLS, ROLLED_BACK, Closing
from ks_actors.lifecycle._component_log import (
    ComponentLog,
    LogClient,
    component_log,
    name_client,
)
from ks_actors.lifecycle._own_loop import check_loop
from ks_actors.lifecycle._shield import run_in_thread, shielded
from ks_actors.lifecycle._slow_log import LogRetries, NoAnswer, Outage, warn_if_slow, with_names
from ks_actors.lifecycle._state_machine import Cycle, Transitions
from ks_actors.lifecycle._threads import in_thread
from ks_actors.lifecycle._timeouts import check_instant, check_span, check_timeout
from ks_actors.lifecycle._user_code import (
    awaited_by_app,
    called_from_within,
    enter_user_code,
    leave_user_code,
)
from ks_actors.lifecycle._user_errors import as_exception, closes, passes

__all__ = [
    "CALLS",
    "ROLLED_BACK",
    "Closing",
    "ComponentLog",
    "Cycle",
    "LogClient",
    "LogRetries",
    "NoAnswer",
    "Outage",
    "RetryBackoff",
    "TaskBackoff",
    "Transitions",
    "admitted",
    "as_exception",
    "awaited_by_app",
    "called_from_within",
    "check_instant",
    "check_loop",
    "check_span",
    "check_timeout",
    "closes",
    "component_log",
    "elapsed_time",
    "enter_user_code",
    "in_background",
    "in_thread",
    "leave_user_code",
    "name_client",
    "passes",
    "run_in_thread",
    "shielded",
    "steady_time",
    "try_step",
    "wall_time",
    "warn_if_slow",
    "with_names",
    "work_time",
]
