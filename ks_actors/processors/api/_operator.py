"""The contract between a node of a topology and the runtime."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Never, Protocol, TypeAlias

from ks_actors._errors import StreamsError
from ks_actors.records import Batch, Headers

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from ks_actors.processors.api._async_options import AsyncOptions
    from ks_actors.processors.api._idle import IdleNode
    from ks_actors.processors.api._record_origins import Origins
    from ks_actors.processors.api._update_cache import Cache
    from ks_actors.records import TaskId
    from ks_actors.serdes import Serde

Process: TypeAlias = Callable[[Any, Any, int, Headers], None]
"""Process one record: key, value, timestamp (ms), headers.

It returns when all downstream processing of the record is done (depth first).
"""

ProcessBatch: TypeAlias = Callable[[Batch], None]
"""Process records in order, with the same results as if they came one by one.

The runtime uses batches only where the results are the same.
"""


class PunctuationType(StrEnum):
    """The clock that calls a punctuator.

    Record timestamps advance stream time; wall-clock time advances by itself.
    """

    STREAM_TIME = "stream_time"
    WALL_CLOCK_TIME = "wall_clock_time"


class NodeContext(Protocol):
    """The runtime's services for one node of one task. Call everything on the task's own turn."""

    @property
    def application_id(self) -> str: ...
    @property
    def task_id(self) -> TaskId: ...
    @property
    def node(self) -> str:
        """The node's name."""
        ...

    @property
    def kafka_streams_faults(self) -> bool:
        """Whether results have the known faults of Kafka Streams, by the setting of this name."""
        ...

    @property
    def leaves_out(self) -> bool:
        """Whether processing may go on without a record that has failed: the handler decides."""
        ...

    @property
    def caching(self) -> bool:
        """Whether updates of some of the app's tables may be held back by a cache."""
        ...

    @property
    def forward(self) -> Process:
        """Forward a record to every child, in order.

        With one child this is the child's own function.
        """
        ...

    @property
    def forward_batch(self) -> ProcessBatch:
        """Forward a batch to every child.

        The runtime has made sure that batches give the same results as single records.
        """
        ...

    @property
    def children(self) -> Mapping[str, Process]:
        """The children by name, in order."""
        ...

    @property
    def children_batch(self) -> Mapping[str, ProcessBatch]: ...

    def store(self, name: str) -> Any:
        """Return a store that the node is connected to, or a global one.

        Raises StoreNotConnected.
        """
        ...

    def cache(self, store: str, *, send_old: bool) -> Cache | None:
        """Return the cache that takes the updates of a store instead of `forward`.

        Returns None when each update must be forwarded at once. `send_old` says that old values are
        needed downstream. Call this while the node is bound.
        """
        ...

    def origins(self) -> Origins:
        """Return the object by which an operator makes held-back records the current ones again."""
        ...

    def key_serde(self, serde: Serde[Any] | None) -> Serde[Any]:
        """Return a serde of keys, the app's default for None.

        Raises TopologyError without a default.
        """
        ...

    def value_serde(self, serde: Serde[Any] | None) -> Serde[Any]:
        """Return a serde of values, the app's default for None.

        Raises TopologyError without a default.
        """
        ...

    def schedule(
        self,
        interval_ms: int,
        punctuation: str,
        callback: Callable[[int], None],
        start_ms: int | None = None,
    ) -> Callable[[], None]:
        """Call back periodically as Kafka Streams does; call the returned function to cancel."""
        ...

    def when_idle(self, after_ms: int, node: IdleNode, /) -> None:
        """Let a node's stream time advance with the wall clock while no record reaches the node.

        This begins after `after_ms` without a record. Call this while the node is bound. A backfill
        ignores the call: history has no wall clock.
        """
        ...

    def when_made(self, make: Callable[[], None], init: Callable[[], None]) -> None:
        """Call `make`, and then `init`, once the functions of all nodes are made.

        First every node's `make` is called, then every node's `init`, both in the order of the
        topology's nodes, as Kafka Streams does. Call this while the node is bound.
        """
        ...

    def dropped(self, count: int = 1, *, told: bool = True) -> None:
        """Count dropped records (metric dropped-records), and log them once a minute if `told`."""
        ...

    def failed(
        self,
        error: BaseException,
        key: Any,
        value: Any,
        timestamp: int,
        headers: Headers,
        offset: int | None = None,
    ) -> None:
        """Ask the processing exception handler about a record.

        Returns to continue without the record, raises ProcessingFailed to end. Call this from an
        `except` block, while the record is the current one. In a batch, `offset` identifies the
        source record. An error that is not an Exception ends the task without asking the handler.
        """
        ...

    @property
    def progress(self) -> MutableMapping[str, int]:
        """Numbers that are committed along with the task's offsets; keys name stores.

        They are restored when the task moves or restarts.
        """
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
        """Return the origin of the current record; None in a punctuation, or when it is unknown.

        Exact in record mode only.
        """
        ...


class RecordMetadata(NamedTuple):
    """The origin of a record."""

    topic: str
    partition: int
    offset: int


def _nothing() -> None:
    """Close nothing."""


def too_early(node: str) -> Callable[..., Never]:
    """Return the placeholder for a user function until its object is initialized."""

    def refuse(*_: object) -> Never:
        raise StreamsError(
            "a processor forwards before it is initialized: forward in process or in a "
            "punctuator, not in init",
            node=node,
        )

    return refuse


class Bound(NamedTuple):
    """One node at work in one task.

    With `batch` None the node takes one record at a time; `close` is called when the task ends.
    """

    process: Process
    batch: ProcessBatch | None = None
    close: Callable[[], None] = _nothing


class AsyncBound(NamedTuple):
    """One node with asynchronous user code, at work in one task.

    `call` takes key, value, timestamp and headers of a record. Call it on the task's own turn,
    while the record is the current one; its result can be awaited at any time, together with
    others. `emit` takes that result and the record again, and forwards the output. Call it on the
    task's own turn, in the order wanted. `close` is called when the task ends.
    """

    call: Callable[[Any, Any, int, Headers], Awaitable[Any]]
    emit: Callable[[Any, Any, Any, int, Headers], None]
    close: Callable[[], None] = _nothing


class Operator(Protocol):
    """One node of a topology: a definition that all tasks share.

    State per task lives in the closures that `bind` makes. `record_context` says that the node's
    code may read the record's metadata, headers or stream time. Its task then processes records one
    at a time, from the source on. The runtime calls the bound function inside a guard, so a
    `process` lets errors of user code through. A `batch` function catches them itself, names the
    record through `context.failed` and continues when that returns.
    """

    @property
    def record_context(self) -> bool: ...

    @property
    def asynchronous(self) -> AsyncOptions | None:
        """Options for user code that is `async def`; the operator is then an `AsyncOperator`."""
        ...

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task. `context.store` works here already."""
        ...


class AsyncOperator(Operator, Protocol):
    """An operator whose user code is `async def`."""

    def bind_async(self, context: NodeContext) -> AsyncBound:
        """Make the functions of one task."""
        ...


def never_alone(_key: Any, _value: Any, _timestamp: int, _headers: Headers) -> None:
    """Refuse to process: the runtime runs this node's async code through `bind_async`."""
    raise RuntimeError("an asynchronous operator cannot process synchronously: use bind_async")
