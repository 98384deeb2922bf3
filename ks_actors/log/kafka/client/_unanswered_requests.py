"""Requests that wait for an answer."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from ks_actors.log.kafka.client._outages import Outages

Line: TypeAlias = "tuple[str, Hashable]"
_LOOK_S: Final = 1.0
# A broker answers these when the slowest member of the group has done its part.
_PATIENT: Final = ("JoinGroup", "SyncGroup")


class _Waiting(NamedTuple):
    line: Line
    name: str
    since: float
    allowance: float


@final
class Unanswered:
    """Look each second at the requests of one client that are under way, while there are any; tell of those that have no answer for `silent_s`.

    A broker may take requests, and never answer: long before a request is given up that is told. A loop that stood still hears late what had been
    answered in time, so a look that comes late is left out.
    """

    def __init__(self, outages: Callable[[], Outages], silent_s: float) -> None:
        self._outages = outages
        self._silent: float = silent_s
        self._waiting: dict[object, _Waiting] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @contextmanager
    def until_answered(self, line: Line, name: str, allowance: float, *, answers: bool = True) -> Iterator[None]:
        """Note that a request, or a connection, is waited for as long as the block; beyond the `allowance` in seconds it is late.

        When the block ends without an error the broker has answered, unless what came is no answer.
        """
        token = object()
        outages = self._outages()
        self._waiting[token] = _Waiting(line, name, outages.clock(), max(0.0, allowance))
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look, outages.clock() + _LOOK_S)
        try:
            yield
        finally:
            del self._waiting[token]
        if answers:
            outages.answered(*line)

    def _look(self, due: float) -> None:
        self._timer = None
        if not self._waiting:
            return
        outages = self._outages()
        now = outages.clock()
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look, now + _LOOK_S)
        if now - due > _LOOK_S / 2:
            return
        for waiting in tuple(self._waiting.values()):
            silent = now - waiting.since
            if silent >= self._silent + waiting.allowance and not waiting.name.startswith(_PATIENT):
                where = waiting.line[0]
                outages.failed(*waiting.line, f"{where} has not answered {waiting.name} for {silent:.0f} s", since=waiting.since)

    def close(self) -> None:
        """Look no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
