"""What a node of a topology is to the runtime."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Never, Protocol, TypeAlias

from ks_actors._errors import StreamsError
from ks_actors.records import Batch, Headers

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from ks_actors.processors.api._async_options import AsyncOptions
    from ks_actors.processors.api._record_origins import Origins
    from ks_actors.processors.api._update_cache import Cache
    from ks_actors.records import TaskId

Process: TypeAlias = Callable[[Any, Any, int, Headers], None]
"""Take one record: key, value, timestamp (ms), headers.

Returns when all that the record causes downstream is done (depth first).
"""

ProcessBatch: TypeAlias = Callable[[Batch], None]
"""Take records in order: the same result as taking them one by one, downstream of a node that has only one path."""


class PunctuationType(StrEnum):
    """Which clock calls a punctuator: stream time goes on with the timestamps of records, wall-clock time by itself."""

    STREAM_TIME = "stream_time"
    WALL_CLOCK_TIME = "wall_clock_time"


class NodeContext(Protocol):
    """What the runtime gives to one node of one task.

    Everything is called on the task's own turn.
    """

    @property
    def application_id(self) -> str: ...
    @property
    def task_id(self) -> TaskId: ...
    @property
    def node(self) -> str:
        """The node's name."""
        ...

    @property
    def forward(self) -> Process:
        """Hand a record to every child, in order; with one child this is the child's own function."""
        ...

    @property
    def forward_batch(self) -> ProcessBatch:
        """Hand a batch to every child; the runtime has made sure that batches give what single records would."""
        ...

    @property
    def children(self) -> Mapping[str, Process]:
        """The children by name, in order."""
        ...

    @property
    def children_batch(self) -> Mapping[str, ProcessBatch]: ...

    def store(self, name: str) -> Any:
        """Return a store that the node is connected to, or a global one; raises StoreNotConnected."""
        ...

    def cache(self, store: str, *, send_old: bool) -> Cache | None:
        """Return what takes the updates of a store instead of `forward`; None when each is to be forwarded at once.

        `send_old` says that old values are wanted downstream. To be called while the node is bound.
        """
        ...

    def origins(self) -> Origins:
        """Return what lets an operator make records that it has held back the current ones again."""
        ...

    def schedule(self, interval_ms: int, punctuation: str, callback: Callable[[int], None], start_ms: int | None = None) -> Callable[[], None]:
        """Call back periodically as Kafka Streams does; the returned function cancels."""
        ...

    def when_made(self, make: Callable[[], None], init: Callable[[], None]) -> None:
        """Call `make`, and then `init`, when the functions of all nodes are made: both in the order in which the topology has its nodes.

        First every node's `make` is called, then every node's `init`, as Kafka Streams does. To be
        called while the node is bound.
        """
        ...

    def dropped(self, count: int = 1) -> None:
        """Count records that were left out (metric dropped-records)."""
        ...

    def failed(self, error: Exception, key: Any, value: Any, timestamp: int, headers: Headers, offset: int | None = None) -> None:
        """Ask the processing exception handler about a record: returns to go on without it, raises ProcessingFailed to end.

        Call it with the record that was being processed, from an `except` block. `offset` tells the
        source record when working on a batch.
        """
        ...

    @property
    def progress(self) -> MutableMapping[str, int]:
        """Numbers that are committed along with the task's offsets and are there again when it moves or restarts; keys name stores."""
        ...

    def stream_time(self) -> int:
        """Return the task's stream time in ms, -1 before the first record."""
        ...

    def wall_time(self) -> int:
        """Return the system time in ms."""
        ...

    def request_commit(self) -> None:
        """Ask for a commit soon."""
        ...

    def record_metadata(self) -> RecordMetadata | None:
        """Return where the current record came from; None in a punctuation, or when that is not known.

        Exact in record mode only.
        """
        ...


class RecordMetadata(NamedTuple):
    """Where a record came from."""

    topic: str
    partition: int
    offset: int


def _nothing() -> None:
    """Close nothing."""


def too_early(node: str) -> Callable[..., Never]:
    """Return what stands for a user's function until its object is initialized."""

    def refuse(*_: object) -> Never:
        raise StreamsError("a record comes before the processor is initialized: forward in process or in a punctuator, not in init", node=node)

    return refuse


class Bound(NamedTuple):
    """One node at work in one task: `batch` None runs it record at a time, `close` is called when the task ends."""

    process: Process
    batch: ProcessBatch | None = None
    close: Callable[[], None] = _nothing


class AsyncBound(NamedTuple):
    """One node with asynchronous user code, at work in one task.

    `call` takes key, value, timestamp and headers of a record and must be called on the task's own
    turn, while the record is the current one; what it returns can be awaited whenever, together
    with others. `emit` takes that result and the record again, hands on what is to be handed on,
    and is called on the task's own turn, in the order wanted. `close` is called when the task ends.
    """

    call: Callable[[Any, Any, int, Headers], Awaitable[Any]]
    emit: Callable[[Any, Any, Any, int, Headers], None]
    close: Callable[[], None] = _nothing


class Operator(Protocol):
    """One node of a topology: a definition that is shared by all tasks. What it keeps per task lives in the closures that `bind` makes.

    `record_context` says that the node's code may look at the record's metadata, headers or stream
    time: its task runs record at a time from the source on. The runtime calls the bound function
    inside a guard, so a `process` lets errors of user code through; a `batch` function catches them
    itself, names the record through `context.failed` and goes on when that returns.
    """

    @property
    def record_context(self) -> bool: ...

    @property
    def asynchronous(self) -> AsyncOptions | None:
        """How its user code is run when that is `async def`; then it is an `AsyncOperator`."""
        ...

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task. Stores can be had from `context.store` right here."""
        ...


class AsyncOperator(Operator, Protocol):
    """An operator whose user code is `async def`."""

    def bind_async(self, context: NodeContext) -> AsyncBound:
        """Make the functions of one task."""
        ...


def never_alone(_key: Any, _value: Any, _timestamp: int, _headers: Headers) -> None:
    """Refuse to process: the code of this node is async, the runtime runs it through `bind_async`."""
    raise RuntimeError("an asynchronous operator does not process by itself: use bind_async")
