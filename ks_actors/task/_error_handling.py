"""Call the app's exception handlers about failed records, and apply their answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from ks_actors._errors import (
    DeserializationFailed,
    LogError,
    ProcessingFailed,
    ProductionFailed,
    StateError,
    StreamsError,
)
from ks_actors.config import ErrorContext, FailedRecord, HandlerResponse, Response, log_and_fail
from ks_actors.history import Done
from ks_actors.lifecycle import as_exception, passes
from ks_actors.records import partition
from ks_actors.task._output_buffer import UNKNOWN_PARTITION, OutputBuffer
from ks_actors.tracing import UNTRACED

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.config import DeadLetter, StreamsConfig
    from ks_actors.history import ExceptionHistory
    from ks_actors.processors.api import RecordMetadata
    from ks_actors.records import Headers, TaskId
    from ks_actors.task._app_topics import TopicSizes
    from ks_actors.task._record_context import RecordContextHolder
    from ks_actors.task.figures import Telemetry
    from ks_actors.task.origins import RawRecord
    from ks_actors.tracing import TaskTracing

OWN_ERRORS: Final = (StreamsError, StateError, LogError)
"""The framework's own errors, which are not about a record: handlers are not asked about them."""


class ExceptionHandlers:
    """The exception handlers of one task.

    If a method returns, continue without the record; otherwise it raises the error that ends the
    task. Dead letters are written like other output: in the transaction, if there is one. Letters
    about a record that ends the task are in `parting`; in a transaction, they are aborted with all
    other output of the task.
    """

    def __init__(
        self,
        task_id: TaskId,
        config: StreamsConfig,
        sizes: TopicSizes,
        telemetry: Telemetry,
        current: RecordContextHolder,
        output: OutputBuffer,
        dropped: Callable[[int], None],
        tracing: TaskTracing = UNTRACED,
    ) -> None:
        self.task_id: TaskId = task_id
        self.dropped: Callable[[int], None] = dropped
        self._config = config
        self._sizes = sizes
        self._answers = telemetry.answers
        self._history = telemetry.history.exceptions
        self.leaves_out: bool = config.processing_exception_handler is not log_and_fail
        self._letters: str | None = config.errors_dead_letter_queue_topic_name
        self._current = current
        self._output = output
        self._tracing = tracing
        self.parting: OutputBuffer = OutputBuffer()

    def deserialization(self, node: str, raw: RawRecord, error: Exception) -> None:
        """Decide about bytes that cannot be deserialized."""
        context = self._of_source(node, raw)
        origin = self._tracing.unreadable(raw.partition, raw.offset, raw.headers)
        record = FailedRecord(
            raw.key,
            raw.value,
            raw.timestamp,
            raw.headers,
            raw.partition.topic,
            raw.partition.partition,
        )
        self._ask(
            "deserialization",
            self._config.deserialization_exception_handler,
            context,
            record,
            error,
            DeserializationFailed(
                f"a record cannot be deserialized: {_text_of(error)}",
                **_where(self.task_id, context),
            ),
            origin,
        )

    def processing(
        self,
        node: str,
        error: BaseException,
        key: Any,
        value: Any,
        timestamp: int,
        headers: Headers,
        offset: int | None,
    ) -> None:
        """Decide about a record for which a user's code raised an error."""
        context = self._context(node, timestamp, headers, offset)
        self._ask(
            "processing",
            self._config.processing_exception_handler,
            context,
            FailedRecord(key, value, timestamp, headers),
            error,
            ProcessingFailed(
                f"processing a record raised {_text_of(error)}", **_where(self.task_id, context)
            ),
            headers,
        )

    def punctuation(self, node: str, error: BaseException, now: int) -> None:
        """Decide about a punctuator that raised an error at time `now`."""
        # The error may be a handler's decision about a record at a node downstream.
        if isinstance(error, OWN_ERRORS):
            raise error
        context = self._unknown(node, now)
        self._ask(
            "processing",
            self._config.processing_exception_handler,
            context,
            None,
            error,
            ProcessingFailed(
                f"a punctuation at {now} raised {_text_of(error)}", task=self.task_id, node=node
            ),
            (),
        )

    def unserializable(
        self,
        node: str,
        topic: str,
        error: Exception,
        key: Any,
        value: Any,
        timestamp: int,
        headers: Headers,
        *,
        cause: str,
        remedy: str,
    ) -> None:
        """Decide about a record that a serde cannot write; the error names cause and remedy."""
        context = self._context(node, timestamp, headers)
        where = _where(self.task_id, context)
        failure = ProductionFailed(
            f"a record for topic {topic} cannot be serialized: {cause}: {_text_of(error)}; "
            f"{remedy}",
            **where,
        )
        self._ask(
            "production",
            self._config.production_exception_handler,
            context,
            FailedRecord(key, value, timestamp, headers, topic),
            error,
            failure,
            headers,
        )

    def _ask(
        self,
        kind: str,
        handler: Callable[..., Any],
        context: ErrorContext,
        record: FailedRecord | None,
        error: BaseException,
        failure: StreamsError,
        origin: Headers,
    ) -> None:
        self._tracing.failed(origin, error)
        if not isinstance(error, Exception):
            if passes(error):
                raise error
            if not isinstance(error, asyncio.CancelledError):
                # As in Kafka Streams, handlers decide about exceptions of class Exception only.
                self._note(kind, context, error, Response(HandlerResponse.FAIL))
                raise failure from error
            error = as_exception(error)
        try:
            response = Response.of(handler(context, record, error))
        except Exception as raised:
            self._note(kind, context, error, Response(HandlerResponse.FAIL))
            raise type(failure)(
                f"the exception handler itself raised {_text_of(raised)}, about: {failure}"
            ) from raised
        self._answers[kind, response.result.value] += 1
        self._note(kind, context, error, response)
        # The ordinary output of a failed task is dropped, so keep the letter apart from it.
        output = self.parting if response.result is HandlerResponse.FAIL else self._output
        for letter in response.dead_letter_queue_records:
            self._write(letter, output, origin)
        if response.result is HandlerResponse.FAIL:
            raise failure from error
        self.dropped(1)

    def retried(self, node: str, error: BaseException, origin: RecordMetadata | None) -> None:
        """Note a failed call for a record, if known, that is made again."""
        topic, number, offset = (None, None, None) if origin is None else origin[:3]
        where: dict[str, Any] = {"topic": topic, "partition": number, "offset": offset}
        self._history.note_at(
            error,
            kind="processing",
            done=Done.RETRIED,
            task=self.task_id,
            node=node,
            shown=False,
            **where,
        )

    def _note(
        self, kind: str, context: ErrorContext, error: BaseException, response: Response
    ) -> None:
        where = _where(self.task_id, context)
        note_answer(self._history, error, kind, response, letters=self._letters, **where)

    def _write(self, letter: DeadLetter, output: OutputBuffer, origin: Headers) -> None:
        # The letter topic may not have been known at the start; the collector looks up its size.
        partitions = self._sizes(letter.topic)
        number = (
            UNKNOWN_PARTITION
            if partitions is None
            else 0
            if letter.key is None
            else partition(letter.key, partitions)
        )
        headers = self._tracing.send(letter.topic, letter.headers, origin=origin)
        output.settle(letter.topic)
        output.column(letter.topic, number).append(
            letter.key, letter.value, letter.timestamp, headers
        )

    def _context(
        self, node: str, timestamp: int, headers: Headers, offset: int | None = None
    ) -> ErrorContext:
        """Return where a record with this time and these headers failed.

        The source record may be known without its bytes: a cache drops them, and a changelog has
        none. Then the record's current time and headers are used. When the record has several
        sources, or an unknown source, the context names no source rather than a wrong source.
        """
        raw = self._current.raw(offset)
        if raw is not None:
            return self._of_source(node, raw)
        metadata = self._current.metadata(offset)
        if metadata is None:
            return self._unknown(node, timestamp)
        return ErrorContext(
            topic=metadata.topic,
            partition=metadata.partition,
            offset=metadata.offset if self._current.logged(offset) else -1,
            headers=headers,
            processor_node_id=node,
            task_id=self.task_id,
            timestamp=timestamp,
            source_raw_key=None,
            source_raw_value=None,
            dead_letter_queue_topic=self._letters,
        )

    def _of_source(self, node: str, raw: RawRecord) -> ErrorContext:
        topic, number = raw.partition
        return ErrorContext(
            topic=topic,
            partition=number,
            offset=raw.offset,
            headers=raw.headers,
            processor_node_id=node,
            task_id=self.task_id,
            timestamp=raw.timestamp,
            source_raw_key=raw.key,
            source_raw_value=raw.value,
            dead_letter_queue_topic=self._letters,
        )

    def _unknown(self, node: str, timestamp: int) -> ErrorContext:
        return ErrorContext(
            topic=None,
            partition=-1,
            offset=-1,
            headers=(),
            processor_node_id=node,
            task_id=self.task_id,
            timestamp=timestamp,
            source_raw_key=None,
            source_raw_value=None,
            dead_letter_queue_topic=self._letters,
        )


def note_answer(
    history: ExceptionHistory,
    error: BaseException,
    kind: str,
    response: Response,
    *,
    letters: str | None,
    **where: Any,
) -> None:
    """Note a failed record with the answer of its handler.

    The text of the error may have values of the record. It is shown only where the record is a dead
    letter of the topic `letters`, which everybody who reads the history may read.
    """
    written = response.dead_letter_queue_records
    done = (
        Done.FAILED
        if response.result is HandlerResponse.FAIL
        else Done.DEAD_LETTERED
        if written
        else Done.SKIPPED
    )
    shown = done is Done.DEAD_LETTERED and any(letter.topic == letters for letter in written)
    history.note_at(error, kind=kind, done=done, shown=shown, **where)


def _where(task: TaskId, context: ErrorContext) -> dict[str, Any]:
    known = context.topic is not None
    return {
        "task": task,
        "node": context.processor_node_id,
        "topic": context.topic,
        "partition": context.partition if known else None,
        "offset": context.offset if context.offset >= 0 else None,
    }


def _text_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
