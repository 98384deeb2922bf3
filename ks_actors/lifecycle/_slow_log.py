"""Bounded waits that log a warning when they are slow."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar, final

from ks_actors._errors import LogTimeout, TransactionAborted
from ks_actors.lifecycle._closing import Closing
from ks_actors.lifecycle._component_log import component_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

T = TypeVar("T")
_SECONDS: Final = 10.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
# With less time there is no second attempt, but the first attempt is not cut short.
_LEAST_SECONDS: Final = 1.0
_ONE_CALL_SECONDS: Final = 60.0
# More than the longest pause before failed work is fetched again.
_FETCHED_AGAIN_SECONDS: Final = 10.0
# The number of names in an error; the others are counted.
_NAMED: Final = 5
_log = component_log(__name__)


async def warn_if_slow(who: str, what: str, work: Awaitable[T]) -> T:
    """Log a warning when an await takes longer than ten seconds."""
    warning = asyncio.get_running_loop().call_later(
        _SECONDS, _log.warning, "%s is still waiting for %s after %g s", who, what, _SECONDS
    )
    try:
        return await work
    finally:
        warning.cancel()


class NoAnswer(LogTimeout):
    """The log has not answered for the whole time of an app's retries: do not retry."""


@final
class LogRetries:
    """Call the log until it answers, for up to `seconds`; then raise NoAnswer.

    The error tells the request and how long it took. For `ask` and `ask_once`, `what` is the text
    after the word "asked" in logs and errors, and `about` the request's partitions or topics. The
    pause between two attempts is 0.05 to 1 s. Once the app closes, a call has until the end of the
    current step of closing (see Closing), and no calls begin in the last step.
    """

    __slots__ = ("_closing", "seconds")

    def __init__(self, seconds: float, closing: Closing | None = None) -> None:
        self.seconds: float = seconds
        self._closing: Closing = Closing() if closing is None else closing

    def share(self, part: float) -> LogRetries:
        """Return retries for a part of the time."""
        return LogRetries(self.seconds * part, self._closing)

    async def ask(
        self,
        what: str,
        call: Callable[[], Awaitable[T]],
        about: Collection[object] = (),
        *,
        waits: float = 0.0,
    ) -> T:
        """Make a call until it does not raise LogTimeout.

        `waits` is the time (s) that a healthy call may take. Raises NoAnswer, and the call's
        errors.
        """
        return await self._ask(what, call, about, again=True, waits=waits)

    async def ask_once(
        self, what: str, call: Callable[[], Awaitable[T]], about: Collection[object] = ()
    ) -> T:
        """Make a call that must not be repeated, because it may have taken effect.

        Raises NoAnswer, and the call's errors.
        """
        return await self._ask(what, call, about, again=False, waits=0.0)

    async def end(self, what: str, call: Callable[[], Awaitable[None]]) -> None:
        """End a part of the log.

        A warning reports a close without an answer: the other side notices by a timeout.
        """
        try:
            async with self._closing.timeout_at(
                asyncio.get_running_loop().time() + max(self.seconds, _ONE_CALL_SECONDS)
            ):
                await call()
        except TimeoutError:
            _log.warning(
                "the log did not answer in time when the app %s; the broker notices it by a "
                "timeout",
                what,
            )

    async def _ask(
        self,
        what: str,
        call: Callable[[], Awaitable[T]],
        about: Collection[object],
        *,
        again: bool,
        waits: float,
    ) -> T:
        if self._closing.over:
            raise NoAnswer(
                f"the log was not asked {with_names(what, about)}: the app is closing, and its "
                f"{self._closing.seconds:g} s for closing (close_timeout_ms) are over"
            )
        clock = asyncio.get_running_loop().time
        began = clock()
        deadline = began + self.seconds
        end = (
            began + waits + (self.seconds if self.seconds >= _LEAST_SECONDS else _ONE_CALL_SECONDS)
        )
        pause = _FIRST_PAUSE
        last: LogTimeout | None = None
        while True:
            try:
                async with self._closing.timeout_at(end):
                    return await call()
            except LogTimeout as error:
                if not again:
                    raise
                last = error
            except TimeoutError:
                raise self._too_late(what, about, last, clock() - began) from last
            if clock() + pause >= self._closing.end(deadline):
                raise self._too_late(what, about, last, clock() - began) from last
            _log.warning(
                "the log has not answered for %.3g s; the app retries until %g s have passed; it "
                "asked %s: %s",
                clock() - began, self.seconds, with_names(what, about), last,
            )  # fmt: skip
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _too_late(
        self, what: str, about: Collection[object], last: LogTimeout | None, seconds: float
    ) -> NoAnswer:
        reason = last or "it gave no answer at all"
        advice = "raise close_timeout_ms" if self._closing.begun else "raise task_timeout_ms"
        return NoAnswer(
            f"the log did not answer within {seconds:.3g} s when it was asked "
            f"{with_names(what, about)}: {reason}. Check that its brokers can be reached, or "
            f"{advice}"
        )


def with_names(what: str, about: Collection[object]) -> str:
    """Return the request with the first of its partitions or topics."""
    names = ", ".join(map(str, islice(about, _NAMED)))
    more = f" and {len(about) - _NAMED} more" if len(about) > _NAMED else ""
    return f"{what} {names}{more}" if names else what


@final
class Outage:
    """The time limit for retries of failed work: the log did not answer, or a transaction was void.

    Work is retried until `seconds` have passed since it was first requested. Times are in seconds,
    of one clock.
    """

    __slots__ = ("_error", "_failed", "_seconds", "_since")

    def __init__(self, seconds: float) -> None:
        self._seconds: float = seconds
        self._since: float | None = None
        # The time of the last failure.
        self._failed: float = 0.0
        self._error: Exception | None = None

    def bears(self, error: Exception, asked: float, now: float) -> bool:
        """Return whether to retry work that was `asked` for at that time and failed by `error`."""
        aborted = isinstance(error, TransactionAborted)
        if not (aborted or isinstance(error, LogTimeout)) or isinstance(error, NoAnswer):
            return False
        since = self._since = asked if self._since is None else self._since
        self._failed = now
        # The log answers that a transaction is void: without work there is no failure.
        self._error = None if aborted else error
        return now - since < self._seconds

    def too_long(self, now: float, away: float, *, idle: bool) -> Exception | None:
        """Return the last error once the outage has lasted too long.

        Callers check this periodically while no commit is due: without input, no work may fail
        again. `away` is the time for which a broker has not answered, 0 if all answer; the outage
        lasts if that began before the last failure. The outage is over if there is nothing to
        commit (`idle`) so long after the last failure: work to repeat would have come back.
        """
        if self._since is None or now - self._since < self._seconds:
            return None
        error = self._error if away and now - away <= self._failed else None
        if error or (idle and now - self._failed >= self._seconds + _FETCHED_AGAIN_SECONDS):
            self.over()
        return error

    def over(self) -> None:
        """Record that some work has succeeded, or is given up."""
        self._since = self._error = None
