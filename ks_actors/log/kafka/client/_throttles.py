"""Wait on connections that brokers have muted, as this client is over its quota (KIP-219)."""

from __future__ import annotations

import asyncio
import math
from typing import Final, final

from ks_actors.lifecycle import component_log

_log = component_log(__name__)
# The least seconds between two warnings about a broker, and the least wait for a warning (ms).
_WARN_EACH: Final = 60.0
_WARN_FROM_MS: Final = 1_000


@final
class Throttles:
    """The times until which connections are muted, by broker and channel.

    A broker reads nothing from a muted connection. If a request were sent meanwhile, the broker
    would seem unreachable.
    """

    __slots__ = ("_until", "_warned")

    def __init__(self) -> None:
        self._until: dict[tuple[int, str], float] = {}
        self._warned: dict[int, float] = {}

    async def wait(self, node: int, channel: str, most_s: float = math.inf) -> bool:
        """Wait while a connection is muted, up to `most_s` seconds; return whether it is free."""
        until = self._until.get((node, channel))
        left = 0.0 if until is None else until - asyncio.get_running_loop().time()
        if left > 0:
            await asyncio.sleep(min(left, most_s))
        elif until is not None:
            del self._until[node, channel]
        return left <= most_s

    def note(self, node: int, channel: str, where: str, throttle_ms: int) -> None:
        """Note that a broker mutes a connection for `throttle_ms` from now on."""
        if throttle_ms <= 0:
            return
        now = asyncio.get_running_loop().time()
        self._until[node, channel] = now + throttle_ms / 1000
        if throttle_ms >= _WARN_FROM_MS and now >= self._warned.get(node, now):
            self._warned[node] = now + _WARN_EACH
            _log.warning(
                "%s throttles this client for %d ms: it is over its quota; raise the quota of its "
                "user or client id",
                where,
                throttle_ms,
            )
