"""The program around a topology: app, history, reset, event loop and signals."""

from ks_actors.app._app import App
from ks_actors.app._event_loop import refuse_running_loop as refuse_running_loop
from ks_actors.app._memory_tuning import tune_gc
from ks_actors.app._reset import reset
from ks_actors.app._reset_plan import ResetOffset, ResetPlan
from ks_actors.app._topic_plan import TopicPlan, plan_app_topics

__all__ = [
    "App",
    "ResetOffset",
    "ResetPlan",
    "TopicPlan",
    "plan_app_topics",
    "reset",
    "tune_gc",
]
