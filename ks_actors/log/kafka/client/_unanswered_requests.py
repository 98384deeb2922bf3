"""Requests that wait for an answer."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ks_actors.log.kafka.client._outages import Line, Outages

_LOOK_S: Final = 1.0
# A broker answers these only after the slowest member of the group has done its part.
_PATIENT: Final = ("JoinGroup", "SyncGroup")
# Seconds after which also these requests are a reason to check whether the broker has left.
_PATIENCE_S: Final = 10.0
# The least seconds between two reports to `doubted`.
_DOUBT_EACH_S: Final = 2.0


class _Waiting(NamedTuple):
    line: Line
    name: str
    since: float
    allowance: float

    @property
    def patient(self) -> bool:
        return self.name.startswith(_PATIENT)

    def complaint(self, now: float) -> str:
        return f"has not answered {self.name} for {now - self.since:.0f} s"


@final
class Unanswered:
    """Check a client's open requests every second; report those silent for `silent_s`.

    A broker may accept requests and never answer; this warns long before the request times out, and
    calls `doubted` every two seconds. A blocked loop receives answers late, so a check that runs
    late is skipped. `watchers` are called at each check that finds a late request.
    """

    def __init__(
        self, outages: Callable[[], Outages], silent_s: float, doubted: Callable[[], object]
    ) -> None:
        self._outages = outages
        self._silent: float = silent_s
        self._doubted = doubted
        self._doubt_at: float = 0.0
        self._waiting: dict[object, _Waiting] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.watchers: set[Callable[[], object]] = set()

    @contextmanager
    def until_answered(
        self, line: Line, name: str, allowance: float, *, answers: bool = True
    ) -> Iterator[None]:
        """Track a request or a connection attempt while the block runs.

        The request counts as late `allowance` seconds after the usual time. If the block ends
        without an error, the broker has answered, unless `answers` is false.
        """
        token = object()
        outages = self._outages()
        self._waiting[token] = _Waiting(line, name, outages.clock(), max(0.0, allowance))
        if self._timer is None and not self._closed:
            outages.track(self)
            self._timer = asyncio.get_running_loop().call_later(
                _LOOK_S, self._check, outages.clock() + _LOOK_S
            )
        try:
            yield
        finally:
            del self._waiting[token]
        if answers:
            outages.answered(line)

    def asks(self, line: Line) -> bool:
        """Return whether a request is open on a line. Any thread may ask."""
        return any(waiting.line == line for waiting in tuple(self._waiting.values()))

    def late(self, line: Line) -> bool:
        """Return whether a request on a line is silent for `silent_s` longer than it may be."""
        now = self._outages().clock()
        return any(
            waiting.line == line and self._late(waiting, now) for waiting in self._waiting.values()
        )

    def silent(self, line: Line, *, alone: bool) -> bool:
        """Return whether a request would probably wait on a line.

        The broker is unreachable, or leaves a request unanswered for long. With `alone`, only
        failures of this line count.
        """
        outages = self._outages()
        now = outages.clock()
        return outages.away(line.where, line if alone else None) or any(
            (waiting.line == line if alone else waiting.line.where == line.where)
            and now - waiting.since > _LOOK_S + waiting.allowance
            and not waiting.patient
            for waiting in self._waiting.values()
        )

    def doubtful(self) -> dict[str, str]:
        """Return the brokers that may have left, each with the reason."""
        now = self._outages().clock()
        return {
            waiting.line.where: waiting.complaint(now)
            for waiting in self._waiting.values()
            if self._late(waiting, now) or (waiting.patient and now - waiting.since >= _PATIENCE_S)
        }

    def _late(self, waiting: _Waiting, now: float) -> bool:
        return not waiting.patient and now - waiting.since >= self._silent + waiting.allowance

    def _check(self, due: float) -> None:
        self._timer = None
        if not self._waiting:
            return
        outages = self._outages()
        now = outages.clock()
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._check, now + _LOOK_S)
        if now - due > _LOOK_S / 2:
            return
        late = [waiting for waiting in self._waiting.values() if self._late(waiting, now)]
        for waiting in late:
            outages.failed(
                waiting.line,
                f"{waiting.line.where} {waiting.complaint(now)}",
                since=waiting.since,
            )
        if late:
            for tell in tuple(self.watchers):
                tell()
        if now >= self._doubt_at and self.doubtful():
            self._doubt_at = now + _DOUBT_EACH_S
            self._doubted()

    def close(self) -> None:
        """Stop checking."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
