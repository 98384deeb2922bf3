"""The program around a topology: app, history, reset, event loop and signals."""

from typing import TYPE_CHECKING

from ks_actors.system import taken_from

if TYPE_CHECKING:
    from ks_actors.app._app import App
    from ks_actors.app._event_loop import refuse_running_loop as refuse_running_loop
    from ks_actors.app._members import processes_of as processes_of
    from ks_actors.app._members import supervise as supervise
    from ks_actors.app._memory_tuning import tune_gc
    from ks_actors.app._reset import reset
    from ks_actors.app._reset_plan import ResetOffset, ResetPlan
    from ks_actors.app._topic_plan import TopicPlan, plan_app_topics
else:
    __getattr__ = taken_from(
        __name__,
        (
            "_app",
            "_memory_tuning",
            "_event_loop",
            "_members",
            "_reset_plan",
            "_topic_plan",
            "_reset",
        ),
        others=("processes_of", "refuse_running_loop", "supervise"),
    )

__all__ = [
    "App",
    "ResetOffset",
    "ResetPlan",
    "TopicPlan",
    "plan_app_topics",
    "reset",
    "tune_gc",
]
