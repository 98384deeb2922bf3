"""Brokers in turn, as the metadata of one may lag behind those of another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from ks_actors.log.kafka.client._rounds import Rounds

if TYPE_CHECKING:
    from collections.abc import Collection

# So many brokers are asked before any is asked again.
_ENOUGH: Final = 3


@final
class Turns:
    """One lookup of topics that may be new, which asks several brokers, and for `wait_s` seconds.

    The time begins with the first answer that lacks one of the topics: before, the brokers may have
    been away.
    """

    __slots__ = ("_left", "_until", "_wait_s", "rounds")

    def __init__(self, wait_s: float) -> None:
        self.rounds: Rounds = Rounds(_ENOUGH)
        self._wait_s: float = wait_s
        self._until: float | None = None
        self._left: int = _ENOUGH

    @property
    def is_over(self) -> bool:
        """Whether the answers so far are all that count."""
        return self._until is not None and asyncio.get_running_loop().time() >= self._until

    def go_on(self, brokers: Collection[int]) -> bool:
        """Return whether to ask another one of `brokers`, as the last answer lacks a topic."""
        if self._until is None:
            self._until = asyncio.get_running_loop().time() + self._wait_s
            self._left = min(_ENOUGH, len(brokers))
        self._left -= 1
        return self._left > 0 or not self.is_over
