"""Every wait is told of when it takes long, and has an end."""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar, final

from ks_actors._errors import LogTimeout
from ks_actors.lifecycle._closing import Closing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

T = TypeVar("T")
_SECONDS: Final = 10.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
# Less patience means no second attempt, not to cut the first one short.
_LEAST_SECONDS: Final = 1.0
_ONE_CALL_SECONDS: Final = 60.0
# Names in an error; more than these are counted.
_NAMED: Final = 5
_log = logging.getLogger("ks_actors")


async def warn_if_slow(who: str, what: str, work: Awaitable[T]) -> T:
    """Await something that has a deadline, or none; after ten seconds say in the log who waits for what."""
    told = asyncio.get_running_loop().call_later(_SECONDS, _log.warning, "%s waits for %s, for %g s by now", who, what, _SECONDS)
    try:
        return await work
    finally:
        told.cancel()


class NoAnswer(LogTimeout):
    """The log has not answered for all the time that an app waits for it: after this it need not be tried again."""


@final
class LogRetries:
    """Ask the log for something until it answers, for up to so many `seconds`; then NoAnswer says for how long, and what was asked.

    `what` follows "asked" in logs and errors, `about` are the partitions or topics behind it. Between two attempts there is a pause of 0.05 to 1 s.
    An app that is `closing` has less patience: calls under way end when the step is over that they are part of, and in the end none is made any more.
    """

    __slots__ = ("_closing", "seconds")

    def __init__(self, seconds: float, closing: Closing | None = None) -> None:
        self.seconds: float = seconds
        self._closing: Closing = Closing() if closing is None else closing

    def share(self, part: float) -> LogRetries:
        """Return patience for a part of the time."""
        return LogRetries(self.seconds * part, self._closing)

    async def ask(self, what: str, call: Callable[[], Awaitable[T]], about: Collection[object] = (), *, waits: float = 0.0) -> T:
        """Make a call, which may wait for so many seconds even if all is well, until it does not raise LogTimeout.

        Raises NoAnswer, and what the call raises.
        """
        return await self._ask(what, call, about, again=True, waits=waits)

    async def ask_once(self, what: str, call: Callable[[], Awaitable[T]], about: Collection[object] = ()) -> T:
        """Make a call which nobody may repeat, for whatever it does may be done. Raises NoAnswer, and what the call raises."""
        return await self._ask(what, call, about, again=False, waits=0.0)

    async def end(self, what: str, call: Callable[[], Awaitable[None]]) -> None:
        """Have a part of the log end, which it does by itself when nobody has patience for its goodbye any more; a warning tells of that."""
        try:
            async with self._closing.timeout_at(asyncio.get_running_loop().time() + max(self.seconds, _ONE_CALL_SECONDS)):
                await call()
        except TimeoutError:
            _log.warning("the log did not answer in time when it was told that the app %s; it has to find out by a timeout", what)

    async def _ask(self, what: str, call: Callable[[], Awaitable[T]], about: Collection[object], *, again: bool, waits: float) -> T:
        if self._closing.over:
            raise NoAnswer(
                f"the log was not asked {told(what, about)}: the app closes, and the {self._closing.seconds:g} s are over that it may take"
            )
        clock = asyncio.get_running_loop().time
        began = clock()
        deadline = began + self.seconds
        end = began + waits + (self.seconds if self.seconds >= _LEAST_SECONDS else _ONE_CALL_SECONDS)
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
                "the log does not answer for %.3g s by now, and is asked again until %g s are over: asked %s: %s",
                clock() - began, self.seconds, told(what, about), last,
            )  # fmt: skip
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _too_late(self, what: str, about: Collection[object], last: LogTimeout | None, seconds: float) -> NoAnswer:
        reason = last or "there was no answer at all"
        advice = "raise close_timeout_ms" if self._closing.begun else "raise task_timeout_ms"
        return NoAnswer(
            f"the log has not answered for {seconds:.3g} s, when it was asked {told(what, about)}: {reason}. "
            f"Look whether its brokers can be reached, or {advice}"
        )


def told(what: str, about: Collection[object]) -> str:
    """Return what was asked, with the first names of what it is about."""
    names = ", ".join(map(str, islice(about, _NAMED)))
    more = f" and {len(about) - _NAMED} more" if len(about) > _NAMED else ""
    return f"{what} {names}{more}" if names else what


@final
class Outage:
    """Tell for how long work that failed is done again because the log did not answer: until `seconds` have gone by since it was first asked for."""

    __slots__ = ("_error", "_seconds", "_since")

    def __init__(self, seconds: float) -> None:
        self._seconds: float = seconds
        self._since: float | None = None
        self._error: Exception | None = None

    def bears(self, error: Exception, asked: float, now: float) -> bool:
        """Return whether to do the work again that was `asked` for at some time and failed by `error`."""
        if not isinstance(error, LogTimeout) or isinstance(error, NoAnswer):
            return False
        since = self._since = asked if self._since is None else self._since
        self._error = error
        return now - since < self._seconds

    def too_long(self, now: float) -> Exception | None:
        """Return the last error once it has lasted for too long: there may be no work that could fail once more, as nothing can be read either."""
        if self._since is None or now - self._since < self._seconds:
            return None
        error, self._since, self._error = self._error, None, None
        return error

    def over(self) -> None:
        """Note that some work has succeeded, or is given up."""
        self._since = self._error = None
