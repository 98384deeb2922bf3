"""The history of exceptions."""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeAlias, final

import msgspec

from ks_actors._errors import (
    LogError,
    MissingSinkTopics,
    MissingSourceTopics,
    StreamsError,
    TaskMigrated,
    TaskTimeout,
)
from ks_actors.snapshots import without_login

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.records import TaskId

_KEPT: Final = 200
_SHOWN: Final = 300
# The texts of these errors are of the runtime or of a broker. Other texts may have values of
# records: those of users' code, and the errors that quote them.
_PLAIN: Final = (LogError, MissingSinkTopics, MissingSourceTopics, TaskMigrated, TaskTimeout)
_Key: TypeAlias = "tuple[str, str, str | None, str | None, Done]"


class Done(Enum):
    """The runtime's reaction to an exception."""

    FAILED = "failed"
    """The work of the task ended; an entry of kind `app` says how the app went on."""
    SKIPPED = "skipped"
    DEAD_LETTERED = "dead-lettered"
    RETRIED = "retried"
    """The work since the last commit is done again, here or by the next owner of the tasks."""
    ENDED = "app ended"


class ExceptionRun(msgspec.Struct):
    """Equal exceptions: of one kind, type, node and topic, with the same reaction.

    `kind` is `deserialization`, `processing` or `production` where an exception handler decided,
    else `commit` or `app`. Times are in ms; task, place and text are those of the last exception.
    `text` is None where it may have values of records.
    """

    first_ms: int
    last_ms: int
    count: int
    kind: str
    error: str
    text: str | None
    done: Done
    node: str | None
    task: str | None
    topic: str | None
    partition: int | None
    offset: int | None


@final
class ExceptionHistory:
    """The last 200 different exceptions, each with its number.

    Workers' threads note exceptions, too.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._runs: OrderedDict[_Key, ExceptionRun] = OrderedDict()
        self._lock = Lock()

    def note(self, error: BaseException, *, kind: str, done: Done) -> None:
        """Note an exception that concerns no single record, or one that knows its place."""
        where = error if isinstance(error, StreamsError) else None
        self.note_at(
            error,
            kind=kind,
            done=done,
            task=None if where is None else where.task,
            node=None if where is None else where.node,
            topic=None if where is None else where.topic,
            partition=None if where is None else where.partition,
            offset=None if where is None else where.offset,
            shown=isinstance(error, _PLAIN),
        )

    def note_at(
        self,
        error: BaseException,
        *,
        kind: str,
        done: Done,
        task: TaskId | None,
        node: str | None,
        topic: str | None,
        partition: int | None,
        offset: int | None,
        shown: bool,
    ) -> None:
        """Note an exception at a record; `shown` says that its text may be shown."""
        now, name = self._now(), _name_of(error)
        text = without_login(str(error))[:_SHOWN] if shown else None
        own = None if task is None else str(task)
        key = kind, name, node, topic, done
        with self._lock:
            if (run := self._runs.get(key)) is None:
                run = self._runs[key] = ExceptionRun(
                    now, now, 0, kind, name, text, done, node, own, topic, partition, offset
                )
                if len(self._runs) > _KEPT:
                    self._runs.popitem(last=False)
            else:
                self._runs.move_to_end(key)
                run.text, run.task, run.partition, run.offset = text, own, partition, offset
            run.last_ms = now
            run.count += 1

    def latest(self) -> list[ExceptionRun]:
        """Return the exceptions, the newest first."""
        with self._lock:
            return [msgspec.structs.replace(run) for run in reversed(self._runs.values())]


def _name_of(error: BaseException) -> str:
    """Return the type of an error, with the type of the error of users' code that caused it."""
    name, cause = type(error).__name__, error.__cause__
    return name if cause is None else f"{name} ({type(cause).__name__})"
