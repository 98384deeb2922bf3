"""Supervision of failed actors: one total function decides, a budget limits restarts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from actors._checks import check_number

if TYPE_CHECKING:
    from random import Random


class Stop(msgspec.Struct, frozen=True):
    """End the actor; its watchers and its parent get Terminated with the error. The default."""


class Resume(msgspec.Struct, frozen=True):
    """Keep the actor and its state, drop the message."""


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """Replace the actor by a new one; ref and mailbox stay, the failed message is dropped.

    At most `limit` restarts happen within a sliding window of `within` seconds, counted per child;
    one more failure ends the actor with that error. The n-th restart in the window waits
    min(backoff[0]·2ⁿ⁻¹, backoff[1]) seconds, stretched by a random share of up to `jitter`, so that
    many actors do not restart in step. Children are stopped first unless `keep_children`.
    """

    limit: int = 3
    within: float = 60.0
    backoff: tuple[float, float] = (0.1, 10.0)
    jitter: float = 0.2
    keep_children: bool = False

    def __post_init__(self) -> None:
        try:
            first, longest = self.backoff
        except (TypeError, ValueError):
            raise TypeError(
                f"backoff must be (first, longest) seconds, is {self.backoff!r}"
            ) from None
        for name, number in (
            ("limit", self.limit),
            ("within", self.within),
            ("backoff[0]", first),
            ("backoff[1]", longest),
            ("jitter", self.jitter),
        ):
            check_number(name, number)
        # Written so that NaN is refused, too. No restart would come after an infinite wait.
        if not (
            self.limit >= 0 and self.within > 0 and 0 <= self.jitter < inf and 0 <= first <= longest
        ):
            raise ValueError(
                f"{self!r}: limit and jitter must not be negative, within must be positive, "
                "backoff must be (first, longest) seconds, and jitter finite"
            )
        if first == inf:
            raise ValueError(f"{self!r}: the first wait of backoff must be finite")


Decision: TypeAlias = Stop | Resume | Restart
Supervise: TypeAlias = Callable[[Exception], Decision]


def stop_always(_error: Exception, /) -> Decision:
    """Decide Stop for every error."""
    return Stop()


class RestartBudget:
    """Count one actor's restarts in the sliding window of the current `Restart`."""

    __slots__ = ("_longest", "_times")

    def __init__(self) -> None:
        self._times: deque[float] = deque()
        self._longest = 0.0

    def spend(self, restart: Restart, now: float, random: Random) -> float | None:
        """Return the seconds to wait before the restart, or None when the budget is spent."""
        times = self._times
        # Windows may differ between errors: each window counts all restarts within it.
        self._longest = max(self._longest, restart.within)
        while times and times[0] <= now - self._longest:
            times.popleft()
        spent = sum(time > now - restart.within for time in times)
        if spent >= restart.limit:
            return None
        first, longest = restart.backoff
        # Limit the exponent so that a generous limit cannot overflow a float.
        delay = min(first * 2.0 ** min(spent, 60), longest)
        times.append(now)
        return delay * (1.0 + restart.jitter * random.random())
