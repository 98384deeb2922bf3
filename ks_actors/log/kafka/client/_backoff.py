"""How long to wait before something is tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from ks_actors.log.kafka.client._options import KafkaOptions

_DOUBLINGS: Final = 10
# Also where no pause is set: whoever asked again at once would do nothing else.
_LEAST_MS: Final = 1
LEAST_S: Final = _LEAST_MS / 1000


@final
class Failures:
    """Failures in a row. What begins to fail in another way is tried again as soon as the first time.

    A broker that takes no connections (`away`) is knocked at more often than one is asked that answers: it costs next to nothing, and all that waits
    goes on as soon as it is back.
    """

    __slots__ = ("_away", "_count")

    def __init__(self) -> None:
        self._count: int = 0
        self._away: bool = False

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return self._count > 0

    def pause_s(self, options: KafkaOptions, *, away: bool = False) -> float:
        """Note one more, and return how long to wait after it, in seconds."""
        if away != self._away:
            self._away, self._count = away, 0
        first, most = (
            (options.reconnect_backoff_ms, options.reconnect_backoff_max_ms) if away else (options.retry_backoff_ms, options.retry_backoff_max_ms)
        )
        pause_ms = max(_LEAST_MS, min(max(_LEAST_MS, first) << min(self._count, _DOUBLINGS), most))
        self._count += 1
        return pause_ms / 1000

    def end(self) -> None:
        """Note that it has worked."""
        self._count = 0
