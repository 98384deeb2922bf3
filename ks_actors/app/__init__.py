"""The program around a topology: app, history, reset, event loop and signals."""

from ks_actors.app._app import App
from ks_actors.app._memory_tuning import tune_gc
from ks_actors.app._reset import reset
from ks_actors.app._reset_plan import ResetOffset, ResetPlan

__all__ = [
    "App",
    "ResetOffset",
    "ResetPlan",
    "reset",
    "tune_gc",
]
