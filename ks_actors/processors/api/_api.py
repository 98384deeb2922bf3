"""The Processor API: see every record, keep state, and schedule punctuators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from ks_actors._hints import Elsewhere
from ks_actors.processors.api._record import FixedKeyRecord, Record

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from datetime import datetime, timedelta

    from ks_actors.processors.api._operator import PunctuationType, RecordMetadata
    from ks_actors.records import TaskId

KIn = TypeVar("KIn")
VIn = TypeVar("VIn")
KOut = TypeVar("KOut")
VOut = TypeVar("VOut")
Out_contra = TypeVar("Out_contra", contravariant=True)

Punctuator: TypeAlias = Callable[[int], None]
"""Called back with the stream time, or the wall-clock time, of the call (ms).

The call may come later than it was due: several missed intervals get one call.
"""


class Context(ABC, Generic[Out_contra]):
    """The access of a processor to its task.

    It belongs to one processor for the lifetime of the task; do not use it elsewhere.
    """

    if not TYPE_CHECKING:
        topic = Elsewhere("context.record_metadata().topic")
        partition = Elsewhere("context.record_metadata().partition")
        offset = Elsewhere("context.record_metadata().offset")
        timestamp = Elsewhere("record.timestamp, of the record that process gets")
        headers = Elsewhere("record.headers, of the record that process gets")
        getStateStore = Elsewhere("context.get_state_store(name)")  # noqa: N815 - Java's name
        currentStreamTimeMs = Elsewhere("context.current_stream_time_ms()")  # noqa: N815 - Java's name
        currentSystemTimeMs = Elsewhere("context.current_system_time_ms()")  # noqa: N815 - Java's name
        recordMetadata = Elsewhere("context.record_metadata()")  # noqa: N815 - Java's name

    @property
    @abstractmethod
    def application_id(self) -> str:
        """The app's id."""

    @property
    @abstractmethod
    def task_id(self) -> TaskId:
        """The task: subtopology and partition."""

    @abstractmethod
    def forward(self, record: Out_contra, child: str | None = None) -> None:
        """Forward a record to all children in the order of their addition, or to one by name.

        The children have processed it on return. In an `async def process` the record is forwarded
        after the call, in the order of the calls to `forward`.
        """

    @abstractmethod
    def get_state_store(self, name: str) -> Any:
        """Return a store that the processor is connected to, or a global one, which is read-only.

        Raises StoreNotConnected.
        """

    @abstractmethod
    def schedule(
        self,
        interval_ms: int | timedelta,
        punctuation: PunctuationType,
        callback: Punctuator,
        start_ms: int | datetime | timedelta | None = None,
    ) -> Callable[[], None]:
        """Call back every `interval_ms`, of stream time or wall-clock time.

        Call the returned function to cancel. `start_ms` is the time of the first call. A processor
        of a global store cannot schedule by wall-clock time.
        """

    @abstractmethod
    def commit(self) -> None:
        """Ask for a commit soon, before the end of the commit interval."""

    @abstractmethod
    def current_stream_time_ms(self) -> int:
        """Return the highest timestamp that the task has seen, -1 before the first record."""

    @abstractmethod
    def current_system_time_ms(self) -> int:
        """Return the wall-clock time in ms; under test, the test's time."""

    @abstractmethod
    def record_metadata(self) -> RecordMetadata | None:
        """Return topic, partition and offset of the current input record.

        Returns None in a punctuation, and for results of several records: when a window closes, or
        in results of a function of many records. For a held-back record, it returns the record's
        own metadata.
        """


ProcessorContext: TypeAlias = Context[Record[KOut, VOut]]
"""The context of a processor that forwards records with keys and values of these types."""

FixedKeyProcessorContext: TypeAlias = Context[FixedKeyRecord[KIn, VOut]]
"""The context of a processor that keeps the keys."""


class Processor(ABC, Generic[KIn, VIn, KOut, VOut]):
    """Base class of a processor that sees every record of its parents, one at a time.

    Subclass it and override `process`, which may be `async def`. A supplier (the class itself will
    do) makes a new processor per task. An error in `process` or in a punctuator goes to the app's
    processing exception handler, with the record.
    """

    context: ProcessorContext[KOut, VOut]

    def init(self, context: ProcessorContext[KOut, VOut]) -> None:
        """Prepare, when the task's stores are ready: get stores, schedule punctuators.

        If you override it, keep the context (or call super).
        """
        self.context = context

    @abstractmethod
    def process(self, record: Record[KIn, VIn]) -> Coroutine[Any, Any, None] | None:
        """Process one record."""

    def close(self) -> None:
        """Release resources that `init` took, except stores.

        Called when the task ends, at least on this instance.
        """


class FixedKeyProcessor(ABC, Generic[KIn, VIn, VOut]):
    """Base class of a processor that forwards records with the same keys; see Processor."""

    context: FixedKeyProcessorContext[KIn, VOut]

    def init(self, context: FixedKeyProcessorContext[KIn, VOut]) -> None:
        """Prepare, when the task's stores are ready: get stores, schedule punctuators.

        If you override it, keep the context (or call super).
        """
        self.context = context

    @abstractmethod
    def process(self, record: FixedKeyRecord[KIn, VIn]) -> Coroutine[Any, Any, None] | None:
        """Process one record."""

    def close(self) -> None:
        """Release resources that `init` took, except stores.

        Called when the task ends, at least on this instance.
        """
