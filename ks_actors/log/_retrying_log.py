"""A log that retries calls without an answer for up to `task_timeout_ms`."""

from __future__ import annotations

from functools import partial
from math import isinf
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from ks_actors.lifecycle import LogRetries
from ks_actors.log._delegating_log import DelegatingLog
from ks_actors.log._port import WritesBytes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ks_actors.lifecycle import Closing
    from ks_actors.log._delegating_log import LogRequest
    from ks_actors.log._port import Log
    from ks_actors.records import TopicPartition

P = ParamSpec("P")
T = TypeVar("T")


def patient(log: Log, timeout_ms: int, closing: Closing | None = None) -> PatientLog:
    """Wrap `log` to retry LogTimeout for up to `timeout_ms`; then it raises NoAnswer.

    While the app is closing, every call ends by the deadline of `closing`, also the calls of
    readers, writers and members.
    """
    return PatientLog(log, LogRetries(timeout_ms / 1000, closing))


class PatientLog(DelegatingLog):
    """A `Log` that repeats each call to another log until it is answered.

    NoAnswer, a LogTimeout, names the time of the attempts and the call. Two calls have the same
    time limit, but are not repeated: `send`, since its outcome is unknown, and `abort`, which the
    collector repeats. The wait for the group's next event has no limit; `delete_read` has the log's
    own limit.
    """

    def __init__(self, log: Log, patience: LogRetries) -> None:
        super().__init__(log)
        self._patience = patience

    @property
    def bare(self) -> Log:
        """The log itself, without retries."""
        return self._log

    @property
    def bytes_per_write(self) -> int:
        """The most bytes of records in one write; 0 for a log that gets records as columns."""
        return self._log.batch_bytes if isinstance(self._log, WritesBytes) else 0

    async def ask(
        self,
        request: LogRequest,
        call: Callable[P, Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Make a call until it is answered, or once. Raises NoAnswer, and the call's errors."""
        if isinf(request.waits):
            return await call(*args, **kwargs)
        patience, bound = self._patience.share(request.share), partial(call, *args, **kwargs)
        if not request.again:
            return await patience.ask_once(request.what, bound, request.about)
        return await patience.ask(request.what, bound, request.about, waits=request.waits)

    async def end(self, what: str, call: Callable[[], Awaitable[None]]) -> None:
        """Close a part within the time of a call."""
        await self._patience.end(what, call)

    async def delete_read(self, before: Mapping[TopicPartition, int], /) -> None:
        """Delete records that fetchers have read, within the log's own time limit.

        The call is not repeated: after a broker's return the partitions may have other records.
        """
        await (self._log.delete_records if self._base is None else self._base.delete_read)(before)
