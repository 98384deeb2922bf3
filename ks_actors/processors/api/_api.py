"""The Processor API: what one writes to see every record, keep state and call back by the clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from ks_actors.processors.api._record import FixedKeyRecord, Record

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ks_actors.processors.api._operator import PunctuationType, RecordMetadata
    from ks_actors.records import TaskId

KIn = TypeVar("KIn")
VIn = TypeVar("VIn")
KOut = TypeVar("KOut")
VOut = TypeVar("VOut")
Out_contra = TypeVar("Out_contra", contravariant=True)

Punctuator: TypeAlias = Callable[[int], None]
"""Called back with the time (ms) that it is due for."""


class Context(ABC, Generic[Out_contra]):
    """What a processor can ask of the task it works in.

    It is the processor's own, for as long as the task lives, and not to be used elsewhere.
    """

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
        """Hand a record to all children in the order in which they were added, or to the one named; they are done with it on return.

        In an `async def process` the record is handed on after the call, in the order of the calls
        to forward.
        """

    @abstractmethod
    def get_state_store(self, name: str) -> Any:
        """Return a store that the processor is connected to, or a global one, which is read-only.

        Raises StoreNotConnected.
        """

    @abstractmethod
    def schedule(self, interval_ms: int, punctuation: PunctuationType, callback: Punctuator, start_ms: int | None = None) -> Callable[[], None]:
        """Call back every `interval_ms`, of stream time or wall-clock time; the returned function cancels.

        `start_ms` is when to begin.
        """

    @abstractmethod
    def commit(self) -> None:
        """Ask for a commit soon, not at the end of the commit interval only."""

    @abstractmethod
    def current_stream_time_ms(self) -> int:
        """Return the highest timestamp that the task has seen, -1 before the first record."""

    @abstractmethod
    def current_system_time_ms(self) -> int:
        """Return the wall-clock time; under test that is the test's."""

    @abstractmethod
    def record_metadata(self) -> RecordMetadata | None:
        """Return topic, partition and offset of the input record that is being processed.

        None in a punctuation, and for what was made of several records: when a window closes, or by
        a function of many records. Of a record that was held back they are its own.
        """


ProcessorContext: TypeAlias = Context[Record[KOut, VOut]]
"""The context of a processor that forwards records with keys and values of these types."""

FixedKeyProcessorContext: TypeAlias = Context[FixedKeyRecord[KIn, VOut]]
"""The context of a processor that keeps the keys."""


class Processor(ABC, Generic[KIn, VIn, KOut, VOut]):
    """Sees every record of its parents, one at a time. Subclass it and override `process`, which may be `async def`.

    A supplier (the class itself will do) makes a new one for every task. Whatever `process` or a
    punctuator raises goes to the app's processing exception handler, with the record.
    """

    context: ProcessorContext[KOut, VOut]

    def init(self, context: ProcessorContext[KOut, VOut]) -> None:
        """Get ready, when the task's stores are: take stores, schedule punctuators.

        Overriding it, keep the context (or call super).
        """
        self.context = context

    @abstractmethod
    def process(self, record: Record[KIn, VIn]) -> Coroutine[Any, Any, None] | None:
        """Process one record."""

    def close(self) -> None:
        """Let go of what `init` took, except stores: the task ends, here, at least."""


class FixedKeyProcessor(ABC, Generic[KIn, VIn, VOut]):
    """Sees every record of its parents and forwards others with the same keys; see Processor."""

    context: FixedKeyProcessorContext[KIn, VOut]

    def init(self, context: FixedKeyProcessorContext[KIn, VOut]) -> None:
        """Get ready, when the task's stores are: take stores, schedule punctuators.

        Overriding it, keep the context (or call super).
        """
        self.context = context

    @abstractmethod
    def process(self, record: FixedKeyRecord[KIn, VIn]) -> Coroutine[Any, Any, None] | None:
        """Process one record."""

    def close(self) -> None:
        """Let go of what `init` took, except stores: the task ends, here, at least."""
