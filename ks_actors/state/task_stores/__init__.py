"""The stores of one task: how they are opened, commit together and are closed."""

from ks_actors.state.task_stores._commit_times import CommitTimes
from ks_actors.state.task_stores._commit_token import Token
from ks_actors.state.task_stores._kinds import TIMESTAMPED, AnyReader, codec_of, reader_of
from ks_actors.state.task_stores._layout import attach
from ks_actors.state.task_stores._positions import At, merged
from ks_actors.state.task_stores._task_stores import TaskStores

__all__ = [
    "TIMESTAMPED",
    "AnyReader",
    "At",
    "CommitTimes",
    "TaskStores",
    "Token",
    "attach",
    "codec_of",
    "merged",
    "reader_of",
]
