"""Start, wait, retry, shield and end."""

from ks_actors.lifecycle._attempt import try_step
from ks_actors.lifecycle._background import beside
from ks_actors.lifecycle._backoff import Rests, TaskRests
from ks_actors.lifecycle._clock import elapsed_time, steady_time, wall_time, work_time
from ks_actors.lifecycle._closing import CALLS, ROLLED_BACK, Closing
from ks_actors.lifecycle._shield import in_thread, whole
from ks_actors.lifecycle._slow_log import NoAnswer, Outage, Patience, patiently, told
from ks_actors.lifecycle._state_machine import Cycle, Transitions

__all__ = [
    "CALLS",
    "ROLLED_BACK",
    "Closing",
    "Cycle",
    "NoAnswer",
    "Outage",
    "Patience",
    "Rests",
    "TaskRests",
    "Transitions",
    "beside",
    "elapsed_time",
    "in_thread",
    "patiently",
    "steady_time",
    "told",
    "try_step",
    "wall_time",
    "whole",
    "work_time",
]
