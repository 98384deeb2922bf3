"""The system's own entries in the log `actors`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from actors.events._events import Abandoned, Failed, Restarted, Stalled, Undelivered
from actors.events._user_frames import to_tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.events._events import EventStream
    from actors.events._user_frames import ExcInfo
    from actors.loop import Clock

_log = logging.getLogger("actors")
_FIRST: Final = 10
_MUTE: Final = 300.0


class EventLog:
    """Log failures and losses. Messages are named by type only: their content may be secret.

    A traceback has only the frames of the user's code, and each error has only one traceback: a
    failure that an entry of another log shows is logged at DEBUG. At DEBUG tracebacks are whole.

    The first 10 undelivered messages are logged, then none for 300 s; the next entry, or the end of
    the system, reports how many there were. So a loop over a dead ref does not fill the disk. A
    stall is one line, with the place in the user's code if it is known; at DEBUG the stack follows.
    A stall without such a place is at DEBUG when it is shorter than `least_stall()` seconds.
    """

    def __init__(
        self, events: EventStream, clock: Clock, least_stall: Callable[[], float] = float
    ) -> None:
        self._clock = clock
        self._least_stall = least_stall
        self._logged = 0
        self._muted = 0
        self._since = 0.0
        events.subscribe(Failed, self._failed)
        events.subscribe(Restarted, self._restarted)
        events.subscribe(Undelivered, self._undelivered)
        events.subscribe(Stalled, self._stalled)
        events.subscribe(Abandoned, self._abandoned)

    def _failed(self, event: Failed) -> None:
        what = "" if event.message is None else f" at {_name(event.message)}"
        if not _log.isEnabledFor(logging.ERROR):
            return
        shown = _shown(event.error)
        _log.log(
            logging.DEBUG if shown is None else logging.ERROR,
            "actor %s failed%s, decision: %s",
            event.path,
            what,
            f"{event.decision} ({event.reason})" if event.reason else event.decision,
            exc_info=shown,
        )

    def _restarted(self, event: Restarted) -> None:
        _log.warning(
            "actor %s runs again as incarnation %d, after %.3f s",
            event.path,
            event.incarnation,
            event.delay,
        )

    def _undelivered(self, event: Undelivered) -> None:
        now = self._clock.time()
        if self._logged >= _FIRST and now - self._since < _MUTE:
            self._muted += 1
            return
        if self._logged >= _FIRST:
            self._tell_muted(now)
            self._logged = 0
        if self._logged == 0:
            self._since = now
        self._logged += 1
        _log.warning(
            "undelivered: %s to %s (%s)%s",
            _name(event.message),
            event.path,
            event.reason,
            f"; more are counted, and not logged for {_MUTE:.0f} s"
            if self._logged == _FIRST
            else "",
            exc_info=event.error and _shown(event.error),
        )

    def close(self) -> None:
        """Log the number of undelivered messages that have no entry of their own."""
        self._tell_muted(self._clock.time())

    def _tell_muted(self, now: float) -> None:
        if self._muted:
            _log.warning(
                "%d more undelivered messages in the last %.0f s", self._muted, now - self._since
            )
        self._muted = 0

    def _stalled(self, event: Stalled) -> None:
        who = f"actor {event.path} at {_name(event.message)}" if event.path else "no actor's code"
        if not event.place:
            level = logging.DEBUG if event.seconds < self._least_stall() else logging.WARNING
            _log.log(level, "the event loop stood still for %.3f s in %s", event.seconds, who)
        else:
            _log.warning(
                "the event loop stood still for %.3f s in %s%s; work that holds the loop belongs "
                "in a thread: use blocking, or asyncio.to_thread",
                event.seconds,
                f"{who}, in " if event.path else "",
                event.place,
            )
        _log.debug("where the event loop stood still:\n%s", event.stack)

    def _abandoned(self, event: Abandoned) -> None:
        _log.warning(
            "nobody waits for blocking job %s of actor %s any more; its thread goes on, and its "
            "result will be dropped",
            event.job,
            event.path,
        )


def _shown(error: BaseException) -> BaseException | ExcInfo | None:
    return error if _log.isEnabledFor(logging.DEBUG) else to_tell(error)


def _name(message: object) -> str:
    return type(message).__qualname__
