"""The outcomes of record batches."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_PENDING = -1


@final
class Outcome:
    """The offset after the last record of a batch, or its error, once known.

    It is no future: a request for many partitions has as many outcomes, and a future tells each
    waiting task in a turn of the event loop of its own. Functions that wait for an outcome are
    called at once.
    """

    __slots__ = ("_error", "_offset", "_waiting")

    def __init__(self) -> None:
        self._offset: int = _PENDING
        self._error: Exception | None = None
        self._waiting: list[Callable[[], object]] = []

    def done(self) -> bool:
        """Return whether the outcome is known."""
        return self._offset != _PENDING or self._error is not None

    def result(self) -> int:
        """Return the offset after the batch, which is known. Raises the error of the batch."""
        if self._error is not None:
            raise self._error
        assert self._offset != _PENDING
        return self._offset

    def exception(self) -> Exception | None:
        """Return the error; None if there is none so far."""
        return self._error

    def set_result(self, next_offset: int) -> None:
        """Note that the batch was written before `next_offset`."""
        self._offset = next_offset
        self._tell()

    def set_exception(self, error: Exception) -> None:
        """Note that the batch has failed."""
        self._error = error
        self._tell()

    def tell(self, call: Callable[[], object]) -> None:
        """Call a function once the outcome is known."""
        self._waiting.append(call)

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()


def join(parts: Sequence[Outcome], whole: Outcome) -> None:
    """Complete `whole` after all parts: with the last part's result, or the first error."""

    def ended() -> None:
        if whole.done():
            return
        failed = next((part.exception() for part in parts if part.exception() is not None), None)
        # Other parts may have been written, as `send` documents for LogTimeout.
        if failed is not None:
            whole.set_exception(failed)
        else:
            whole.set_result(parts[-1].result())

    _after_all(parts, ended)


async def wait_for(outcomes: Iterable[Outcome]) -> None:
    """Wait until all of these are known."""
    waiting = [outcome for outcome in outcomes if not outcome.done()]
    if not waiting:
        return
    known = asyncio.get_running_loop().create_future()

    def ended() -> None:
        # A cancellation of the waiting task has cancelled the future.
        if not known.done():
            known.set_result(None)

    _after_all(waiting, ended)
    await known


def _after_all(outcomes: Sequence[Outcome], call: Callable[[], None]) -> None:
    left = len(outcomes)

    def one() -> None:
        nonlocal left
        left -= 1
        if not left:
            call()

    for outcome in outcomes:
        outcome.tell(one)
