"""Backoff between retries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from ks_actors.log.kafka.client._options import KafkaOptions

_DOUBLINGS: Final = 10
# Also the least pause without backoff: immediate retries would keep the loop busy.
_LEAST_MS: Final = 1
LEAST_S: Final = _LEAST_MS / 1000


@final
class Backoff:
    """Count failures in a row; another kind of failure restarts the backoff.

    Retries are more frequent while a broker accepts no connections (`away`) than while it answers
    with errors. A failed attempt to connect costs next to nothing, and with frequent attempts the
    waiting calls resume as soon as the broker returns.
    """

    __slots__ = ("_away", "_count")

    def __init__(self) -> None:
        self._count: int = 0
        self._away: bool = False

    def __bool__(self) -> bool:
        """Tell whether the last attempt failed."""
        return self._count > 0

    def pause_s(self, options: KafkaOptions, *, away: bool = False) -> float:
        """Count one more failure, and return the pause after it in seconds."""
        if away != self._away:
            self._away, self._count = away, 0
        first, most = (
            (options.reconnect_backoff_ms, options.reconnect_backoff_max_ms)
            if away
            else (options.retry_backoff_ms, options.retry_backoff_max_ms)
        )
        pause_ms = max(_LEAST_MS, min(max(_LEAST_MS, first) << min(self._count, _DOUBLINGS), most))
        self._count += 1
        return pause_ms / 1000

    def end(self) -> None:
        """Reset the count after a success."""
        self._count = 0
