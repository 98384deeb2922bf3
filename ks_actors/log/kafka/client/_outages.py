"""Log brokers that do not answer: at once, and repeatedly until they answer; note refusals."""

from __future__ import annotations

from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final
from weakref import WeakSet

from ks_actors.lifecycle import component_log
from ks_actors.log._types import Outage

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors._errors import LogError

_log = component_log(__name__)
# Seconds from the start of an outage to its warnings, and the interval of later warnings.
_TELL_AT: Final = (0.0, 1.0, 5.0)
_TELL_EACH: Final = 10.0
# The least seconds between first warnings about a broker that fails repeatedly.
_LEAST_S: Final = 5.0
# Seconds without a request after which an outage is dropped: the broker may have left the cluster,
# or have no more to do for this client. Retries of a needed broker come more often than this.
_FORGET_S: Final = 10.0
# The least seconds without a request after which an answer on another line ends an outage.
_RETRY_S: Final = 2.0
# That time is also at least this many times the longest pause between two attempts.
_PAUSES: Final = 2
# Seconds of refusals of one request before the first warning.
_TELL_REFUSED_S: Final = 5.0
# Seconds for which fetches may be refused before that is an outage: leaders move in less.
_REFUSED_S: Final = 1.0


class Line(NamedTuple):
    """A socket of a client to a broker, or an attempt to open it.

    `where` is the broker's address: of a bootstrap server a client knows only the address.
    """

    where: str
    client: int
    channel: str


class Asks(Protocol):
    """The open requests of a client."""

    def asks(self, line: Line) -> bool:
        """Return whether a request is open on a line."""
        ...


class _Failure(NamedTuple):
    """The failures of a line: the times of the first and last failure, and the last reason."""

    since: float
    seen: float
    reason: str


class _Away:
    """A broker with at least one unanswered line."""

    __slots__ = ("lines", "since", "warnings")

    def __init__(self, since: float) -> None:
        self.since: float = since
        self.warnings: int = 0
        self.lines: dict[Line, _Failure] = {}

    def due(self) -> float:
        """Return the time of the next warning."""
        if self.warnings < len(_TELL_AT):
            return self.since + _TELL_AT[self.warnings]
        return self.since + _TELL_AT[-1] + _TELL_EACH * (self.warnings - len(_TELL_AT) + 1)


@final
class Outages:
    """The unanswering brokers of a log, by address; its clients share one instance.

    So all clients together log an outage once: WARNING at the first failure, after 1 s, after 5 s,
    then every 10 s; INFO when the broker answers, or is no longer asked while other brokers answer.
    Any thread may use it. `clock` is in seconds, `pause_ms` is the longest pause between two
    attempts. Refused fetches are outages, too, which their callers report.
    """

    def __init__(self, clock: Callable[[], float] = monotonic, *, pause_ms: int = 0) -> None:
        self.clock: Callable[[], float] = clock
        self._retry: float = max(_RETRY_S, _PAUSES * pause_ms / 1000)
        self._forget: float = max(_FORGET_S, self._retry)
        self._lock = Lock()
        self._away: dict[str, _Away] = {}
        self._last_warned: dict[str, float] = {}
        # Partitions, or brokers, whose fetches are answered with errors.
        self._refused: dict[object, _Failure] = {}
        self._clients = WeakSet[Asks]()

    def track(self, client: Asks) -> None:
        """Do not drop outages of lines on which this client has an open request."""
        with self._lock:
            self._clients.add(client)

    def failed(self, line: Line, reason: str, *, since: float | None = None) -> None:
        """Note that a broker does not answer on a line; `reason` names the broker.

        The outage starts now, or at `since`, a time of the clock.
        """
        now, where = self.clock(), line.where
        with self._lock:
            self._forget_old(now)
            away = self._away.get(where)
            if away is None:
                away = self._away[where] = _Away(now if since is None else since)
            known = away.lines.get(line)
            away.lines[line] = _Failure(
                min(away.since if known is None else known.since, now), now, reason
            )
            if now < away.due() or (
                away.warnings == 0 and now - self._last_warned.get(where, now - _LEAST_S) < _LEAST_S
            ):
                return
            away.warnings += 1
            while away.due() <= now:
                away.warnings += 1
            self._last_warned[where] = now
            seconds = now - away.since
        _log.warning(
            "%s; the client retries until it answers%s",
            reason,
            f", for {seconds:.0f} s so far" if seconds >= 1 else "",
        )

    def refused(self, what: object, reason: str) -> None:
        """Note that fetches of `what`, a partition or a broker, are refused, and the reason.

        The outage ends when they are served, or not attempted for 2 s; longer if pauses between
        attempts are long.
        """
        now = self.clock()
        with self._lock:
            known = self._refused.get(what)
            since = now if known is None or self._is_over(known, now) else known.since
            self._refused[what] = _Failure(since, now, reason)

    def served(self, what: object) -> None:
        """Note that refused fetches of a partition or a broker are served."""
        with self._lock:
            self._refused.pop(what, None)

    def answered(self, line: Line) -> None:
        """Note that a broker answers on a line. This costs nothing as long as all brokers answer.

        It also ends old outages without further attempts: of other lines to this broker, and of
        lines to brokers whose partitions other brokers have taken over.
        """
        if not self._away:
            return
        now, ended = self.clock(), list[tuple[str, float, bool]]()
        with self._lock:
            for where, away in tuple(self._away.items()):
                for failed, failure in tuple(away.lines.items()):
                    if (where == line.where and failed[1:] == line[1:]) or (
                        now - failure.seen > self._retry and not self._asked(failed)
                    ):
                        del away.lines[failed]
                if away.lines:
                    continue
                del self._away[where]
                if away.warnings:
                    self._last_warned[where] = now
                    ended.append((where, now - away.since, where == line.where))
        for where, seconds, answers in ended:
            text = "answers again" if answers else "is no longer asked, as other brokers answer"
            _log.info("%s %s, after %.1f s", where, text, seconds)

    def away(self, where: str, line: Line | None = None) -> bool:
        """Return whether a broker has unanswered lines; with `line`, whether this is one."""
        away = self._away.get(where)
        return away is not None and (line is None or line in away.lines)

    def forget(self, client: int) -> None:
        """Drop the lines of a closed client."""
        with self._lock:
            for where, away in tuple(self._away.items()):
                for line in [line for line in away.lines if line.client == client]:
                    del away.lines[line]
                if not away.lines:
                    del self._away[where]

    def now(self) -> list[Outage]:
        """Return the current outages, the longest first.

        Refused fetches of many partitions are one outage; those of less than 1 s are ordinary.
        """
        now = self.clock()
        with self._lock:
            self._forget_old(now)
            found = [
                Outage(now - away.since, max(away.lines.values(), key=_seen).reason)
                for away in self._away.values()
            ]
            refused = [
                (known.since, known.reason)
                for known in self._refused.values()
                if known.seen - known.since >= _REFUSED_S
            ]
        if refused:
            since, reason = min(refused)
            others = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
            found.append(Outage(now - since, f"{reason}{others}", refused=True))
        return sorted(found, reverse=True)

    def _forget_old(self, now: float) -> None:
        for what, refused in tuple(self._refused.items()):
            if self._is_over(refused, now):
                del self._refused[what]
        for where, away in tuple(self._away.items()):
            for line, known in tuple(away.lines.items()):
                if now - known.seen > self._forget and not self._asked(line):
                    del away.lines[line]
            if not away.lines:
                del self._away[where]

    def _is_over(self, refused: _Failure, now: float) -> bool:
        return now - refused.seen > self._retry

    def _asked(self, line: Line) -> bool:
        return any(client.asks(line) for client in self._clients)


def _seen(line: _Failure) -> float:
    return line.seen


@final
class Refusals:
    """The refusals of one call by answering brokers: a warning after 5 s, then every 10 s."""

    __slots__ = ("_due", "_since", "_what")

    def __init__(self, what: str) -> None:
        self._what: str = what
        self._since: float | None = None
        self._due: float = 0.0

    def note(self, error: LogError, now: float) -> None:
        """Note one more refusal at `now`, in seconds."""
        if self._since is None:
            self._since, self._due = now, now + _TELL_REFUSED_S
        elif now >= self._due:
            self._due = now + _TELL_EACH
            _log.warning(
                "the client has failed %s for %.0f s, and retries: %s",
                self._what,
                now - self._since,
                error,
            )
