"""Backfills from history."""

from ks_actors.batch.backfill._plan import (
    CHOICES,
    Choice,
    Plan,
    Stage,
    TaskPlan,
    first_source,
    make_plan,
    parts_of,
)
from ks_actors.batch.backfill._publish import publish_backfill
from ks_actors.batch.backfill._result import Backfill, BackfillProgress, TaskDone, tell
from ks_actors.batch.backfill._rows import RowFiles
from ks_actors.batch.backfill._snapshot import Target, commit_snapshot, new_snapshot
from ks_actors.batch.backfill._task_run import Recipe, TaskRun, probe
from ks_actors.batch.backfill._work_loop import WorkLoop

__all__ = [
    "CHOICES",
    "Backfill",
    "BackfillProgress",
    "Choice",
    "Plan",
    "Recipe",
    "RowFiles",
    "Stage",
    "Target",
    "TaskDone",
    "TaskPlan",
    "TaskRun",
    "WorkLoop",
    "commit_snapshot",
    "first_source",
    "make_plan",
    "new_snapshot",
    "parts_of",
    "probe",
    "publish_backfill",
    "tell",
]
