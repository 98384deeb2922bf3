"""Exception handlers: decisions about records that fail."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from ks_actors.lifecycle import component_log
from ks_actors.records import Headers, TaskId
from ks_actors.system import Later

if TYPE_CHECKING:
    from actors import events
else:
    events = Later("actors.events")

_log = component_log(__name__)

LETTER_PREFIX: Final = "__streams.errors."
_TELL_EACH_S: Final = 60.0
_GOES_ON: Final = "; processing goes on without it"
# By event loop, as their clocks differ: for each node and type of error the time of the next line,
# and the number of failures since the last line.
_told: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, type], tuple[float, int]]] = (
    WeakKeyDictionary()
)


class HandlerResponse(Enum):
    """The decision about a failed record and the app."""

    FAIL = "FAIL"
    """Processing ends with the error."""
    RESUME = "RESUME"
    """Drop the failed record and continue.

    It counts as dropped. If the record takes several branches, only the failed branch is left out.
    """


class DeadLetter(msgspec.Struct, frozen=True):
    """A record for a dead letter queue; its key determines its partition, as usual."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()


class Response(msgspec.Struct, frozen=True):
    """A decision, with records for a dead letter queue.

    The records are written like other output, in the transaction if there is one.
    """

    result: HandlerResponse
    dead_letter_queue_records: tuple[DeadLetter, ...] = ()

    @classmethod
    def of(cls, answer: object, /) -> Response:
        """Return a handler's answer as a Response; raise TypeError for other answers."""
        if isinstance(answer, Response):
            return answer
        if isinstance(answer, HandlerResponse):
            return cls(answer)
        raise TypeError(
            "an exception handler must return HandlerResponse.FAIL, HandlerResponse.RESUME or a "
            f"Response; this one returned {answer!r}"
        )


class FailedRecord(msgspec.Struct, frozen=True):
    """The record that failed.

    A deserialization handler gets the bytes that were read, a processing handler the node's input.
    A production handler gets the output for `topic`: objects when the serde failed, else bytes. A
    failed punctuation has no record.
    """

    key: Any
    value: Any
    timestamp: int
    headers: Headers = ()
    topic: str | None = None
    partition: int | None = None


class ErrorContext(msgspec.Struct, frozen=True, kw_only=True):
    """The source record, as it came from the log, and the node of a failure.

    Without a source record (in a punctuation, or when several were merged) `topic` is None,
    `partition` and `offset` are -1, and there are no headers. `timestamp` is then the failed
    record's, or the punctuation's. For a cached or suppressed record, the raw key and value may be
    None although topic and offset are known. `dead_letter_queue_topic` is the app's setting
    errors_dead_letter_queue_topic_name.
    """

    topic: str | None
    partition: int
    offset: int
    headers: Headers
    processor_node_id: str
    task_id: TaskId
    timestamp: int
    source_raw_key: bytes | None
    source_raw_value: bytes | None
    dead_letter_queue_topic: str | None = None

    def dead_letters(self, error: BaseException) -> tuple[DeadLetter, ...]:
        """Return the source record for the dead letter queue, with `error` in its headers.

        Empty when the app has no such queue.
        """
        topic = self.dead_letter_queue_topic
        return () if topic is None else (dead_letter(topic, self, error),)


def dead_letter(topic: str, context: ErrorContext, error: BaseException) -> DeadLetter:
    """Return the source record of `context` as a record for `topic`.

    It has the same key, value and headers, followed by headers that describe the error.
    """
    kind = type(error)
    named = {
        "exception": kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}",
        "message": str(error),
        "stacktrace": _stack(error),
        "topic": context.topic,
        "partition": str(context.partition),
        "offset": str(context.offset),
    }
    # A lone surrogate in a message, from bad input, must not break the report.
    headers = tuple(
        (LETTER_PREFIX + name, None if text is None else text.encode(errors="backslashreplace"))
        for name, text in named.items()
    )
    return DeadLetter(
        topic,
        context.source_raw_key,
        context.source_raw_value,
        max(0, context.timestamp),
        context.headers + headers,
    )


def _stack(error: BaseException) -> str:
    """Return the stack of an error and its causes.

    Omits source lines, which take a hundred times as long to find.
    """
    causes: list[str] = []
    seen: BaseException | None = error
    while seen is not None:
        lines = [
            f'  File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_qualname}'
            for frame, line in traceback.walk_tb(seen.__traceback__)
        ]
        causes.append("\n".join([f"{type(seen).__name__}: {seen}", *lines]))
        seen = seen.__cause__
    return "\ncaused by ".join(causes)


class DeserializationExceptionHandler(Protocol):
    """A function that decides about a record with an unreadable key or value."""

    def __call__(
        self, context: ErrorContext, record: FailedRecord, error: Exception, /
    ) -> HandlerResponse | Response:
        """Answer; an error raised here ends processing."""
        ...


class ProcessingExceptionHandler(Protocol):
    """A function that decides about a record that made a processor or a DSL function raise.

    `record` is None in a punctuation.
    """

    def __call__(
        self, context: ErrorContext, record: FailedRecord | None, error: Exception, /
    ) -> HandlerResponse | Response:
        """Answer; an error raised here ends processing."""
        ...


class ProductionExceptionHandler(Protocol):
    """A function that decides about a record that cannot be serialized, or that the log refused."""

    def __call__(
        self, context: ErrorContext, record: FailedRecord, error: Exception, /
    ) -> HandlerResponse | Response:
        """Answer; an error raised here ends processing."""
        ...


ExceptionHandler: TypeAlias = (
    DeserializationExceptionHandler | ProcessingExceptionHandler | ProductionExceptionHandler
)


def log_and_fail(
    context: ErrorContext, record: FailedRecord | None, error: Exception, /
) -> Response:
    """Log an error and end processing. The default of all handlers.

    The source record goes to the dead letter queue if there is one.
    """
    _tell(logging.ERROR, context, record, error, "; processing ends")
    return Response(HandlerResponse.FAIL, context.dead_letters(error))


def log_and_continue(
    context: ErrorContext, record: FailedRecord | None, error: Exception, /
) -> Response:
    """Log a warning and continue without the record.

    The source record goes to the dead letter queue if there is one. For each node and type of error
    the first failure is logged with its traceback, then at most one line a minute with the number
    of failures since.
    """
    _tell_some(context, record, error)
    return Response(HandlerResponse.RESUME, context.dead_letters(error))


class stop_after:  # noqa: N801 - given where the functions are given
    """A handler that continues as `log_and_continue` does, until too many records have failed.

    It ends processing at a failure that follows `failures` others within `per_seconds`: then the
    fault is not in a single record, but in something that all records need. The last failed record
    is no dead letter, and is processed again after a restart. `failures` is an int of 1 or more,
    `per_seconds` a number of seconds above 0. Give each setting a handler of its own, or several
    settings the same handler, which then counts their failures together. In a file:
    `"stop_after(10, per_seconds=60)"`.

    Raises ValueError for other numbers.
    """

    def __init__(self, failures: int, *, per_seconds: float) -> None:
        if failures < 1 or per_seconds <= 0:
            raise ValueError(
                f"{failures} failures per {per_seconds} seconds: give 1 or more failures, and more "
                "than 0 seconds"
            )
        self._failures = failures
        self._per_seconds = per_seconds
        self._times: deque[float] = deque(maxlen=failures)

    def __repr__(self) -> str:
        return f"stop_after({self._failures}, per_seconds={self._per_seconds:g})"

    def __call__(
        self, context: ErrorContext, record: FailedRecord | None, error: Exception, /
    ) -> Response:
        """Continue without the record, or end processing."""
        loop = _loop()
        now = time.monotonic() if loop is None else loop.time()
        times = self._times
        if len(times) == self._failures and 0 <= now - times[0] < self._per_seconds:
            why = f"; {self._failures} others within {self._per_seconds:g} s: processing ends"
            _tell(logging.ERROR, context, record, error, why)
            return Response(HandlerResponse.FAIL)
        times.append(now)
        return log_and_continue(context, record, error)


def _loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _tell_some(context: ErrorContext, record: FailedRecord | None, error: Exception) -> None:
    """Log the first failure of a kind, then a failure a minute: dead letters have all details."""
    loop = _loop()
    if loop is None:
        _tell(logging.WARNING, context, record, error, _GOES_ON)
        return
    told = _told.setdefault(loop, {})
    kind, now = (context.processor_node_id, type(error)), loop.time()
    due, more = told.get(kind, (None, 0))
    if due is not None and now < due:
        told[kind] = due, more + 1
        return
    told[kind] = now + _TELL_EACH_S, 0
    if due is None:
        more_told = "; further failures of this kind are told once a minute, without a traceback"
        _tell(logging.WARNING, context, record, error, _GOES_ON + more_told)
    else:
        since = f"; {more} more since the last line about such failures"
        rest = f": {type(error).__name__}{_GOES_ON}{since}"
        _tell(logging.WARNING, context, record, error, rest, traced=False)


def _tell(
    level: int,
    context: ErrorContext,
    record: FailedRecord | None,
    error: Exception,
    rest: str,
    *,
    traced: bool = True,
) -> None:
    if not _log.isEnabledFor(level):
        return
    shown: Any = error if traced else None
    if traced and not _log.isEnabledFor(logging.DEBUG):
        # The entry names the place, so frames of this package's serdes would add nothing.
        shown = events.to_tell(error, placed=True)
    _log.log(
        level,
        "%s%s",
        _where(context, record),
        rest,
        exc_info=shown,
        extra={
            "node": context.processor_node_id,
            "task": str(context.task_id),
            "topic": context.topic,
            "partition": context.partition,
            "offset": context.offset,
        },
    )


def _where(context: ErrorContext, record: FailedRecord | None) -> str:
    """Describe the failure and its place: the output, the task and the source, as far as known."""
    said = "a punctuation failed" if record is None else "a record failed"
    source = (context.topic, context.partition)
    # A record that cannot be read has no output topic.
    if (
        record is not None
        and record.topic is not None
        and (record.topic, record.partition) != source
    ):
        place = "" if record.partition is None else f", partition {record.partition},"
        said = f"a record for topic {record.topic}{place} failed"
    said += f" at node {context.processor_node_id}"
    # Records that the log refuses come from the collector, which serves all tasks.
    if context.topic is not None or context.task_id.subtopology >= 0:
        said += f", task {context.task_id}"
    if context.topic is not None:
        said += f", topic {context.topic}, partition {context.partition}, offset {context.offset}"
    return said
