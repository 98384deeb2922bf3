"""Task execution without actors: sources, operators, sinks and their context."""

from ks_actors.task._app_topics import AppTopics, TopicSizes, is_internal, is_own_internal
from ks_actors.task._error_handling import note_answer
from ks_actors.task._frozen import Frozen
from ks_actors.task._offset_metadata import (
    OWN_NUMBER,
    Position,
    contained,
    decode_position,
    encode_position,
)
from ks_actors.task._output_buffer import UNKNOWN_PARTITION, Gathered, Unplaced
from ks_actors.task._record_context import RecordContextHolder
from ks_actors.task._record_queue import RecordQueue
from ks_actors.task._states import TaskLife, TaskState, begin_anew, end_life, new_life
from ks_actors.task._store_registry import RegisteredStores, Role, StoreRegistry, behind_caches
from ks_actors.task._store_specs import DefaultSerdes, StoreSpecs
from ks_actors.task._task import Task
from ks_actors.task._task_parts import Clocks, Planning, TaskParts
from ks_actors.task._task_runner import GLOBAL, TaskRunner, make_stores
from ks_actors.task._uncaught import uncaught
from ks_actors.task._unreadable_batch import left_out, passed_over
from ks_actors.task.figures import Emission, Telemetry
from ks_actors.task.times import BACK_MS

__all__ = [
    "BACK_MS",
    "GLOBAL",
    "OWN_NUMBER",
    "UNKNOWN_PARTITION",
    "AppTopics",
    "Clocks",
    "DefaultSerdes",
    "Emission",
    "Frozen",
    "Gathered",
    "Planning",
    "Position",
    "RecordContextHolder",
    "RecordQueue",
    "RegisteredStores",
    "Role",
    "StoreRegistry",
    "StoreSpecs",
    "Task",
    "TaskLife",
    "TaskParts",
    "TaskRunner",
    "TaskState",
    "Telemetry",
    "TopicSizes",
    "Unplaced",
    "begin_anew",
    "behind_caches",
    "contained",
    "decode_position",
    "encode_position",
    "end_life",
    "is_internal",
    "is_own_internal",
    "left_out",
    "make_stores",
    "new_life",
    "note_answer",
    "passed_over",
    "uncaught",
]
