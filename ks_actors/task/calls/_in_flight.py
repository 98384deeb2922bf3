"""Records in flight: the calls of a user's code, and the protocol of nodes that wait for them."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio

    from ks_actors.metrics import Timing
    from ks_actors.processors.api import RecordMetadata
    from ks_actors.records import Headers
    from ks_actors.task._record_context import RecordContextHolder
    from ks_actors.task.calls._turnover import Turnover
    from ks_actors.task.origins import OriginPage


class Call:
    """One record in process by a user's coroutine."""

    __slots__ = (
        "began",
        "deadline",
        "error",
        "headers",
        "key",
        "lane",
        "late",
        "offset",
        "over",
        "page",
        "result",
        "task",
        "timestamp",
        "turn",
        "value",
    )

    def __init__(
        self, key: Any, value: Any, timestamp: int, headers: Headers, current: RecordContextHolder
    ) -> None:
        self.key: Any = key
        self.value: Any = value
        self.timestamp: int = timestamp
        self.headers: Headers = headers
        self.page: OriginPage | None = current.page
        self.offset: int = current.offset
        self.turn: int = 0
        self.lane: Any = None
        self.began: float = 0.0
        self.deadline: float = inf
        self.late: bool = False
        self.task: asyncio.Task[None] | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.over: bool = False

    @property
    def origin(self) -> RecordMetadata | None:
        """The record's source position; None for a punctuation's record, or when unknown."""
        return None if self.page is None else self.page.metadata(self.offset)


class InFlight(Protocol):
    """An asynchronous node as the runtime sees it, of single records or of batches.

    No method waits.
    """

    node: str
    in_flight: int
    times: Timing
    """The times (s) of calls that have ended, with their retries."""
    turnover: Turnover
    """The record counts that show when all records of a moment have left."""

    @property
    def running(self) -> int:
        """The number of calls in the user's code."""
        ...

    @property
    def failures(self) -> int:
        """The number of calls that have failed, after their retries."""
        ...

    @property
    def retries_at(self) -> float:
        """The end of the last pause before a retry, past or future, on the loop's clock (s)."""
        ...

    @property
    def room(self) -> int:
        """The number of records that may be added now."""
        ...

    @property
    def has_results(self) -> bool:
        """Whether `emit` has work."""
        ...

    @property
    def settled(self) -> bool:
        """Whether no records are in the user's code or wait for it: all have results."""
        ...

    @property
    def oldest(self) -> Call | None:
        """The call that has been running for longest, None without any."""
        ...

    @property
    def leaving(self) -> bool:
        """Whether cancelled calls are still running in the user's code."""
        ...

    @property
    def waits(self) -> bool:
        """Whether there are records that wait for others, and `flush` would send them."""
        ...

    def process(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """Add a record; a later `emit` emits its results."""
        ...

    def emit(self) -> bool:
        """Emit results; return whether there were any."""
        ...

    def flush(self) -> None:
        """Send the records that wait for others."""
        ...

    def cancel(self) -> None:
        """Cancel all records in flight."""
        ...

    def close(self) -> None:
        """Cancel calls in flight, and close the user's code."""
        ...
