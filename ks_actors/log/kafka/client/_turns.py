"""Brokers in turn, as the metadata of one may lag behind those of another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Collection

# Seconds that a further broker may take: it may be frozen, and another one has answered.
_LIMIT_S: Final = 3.0
# So many brokers are asked before any is asked again: on a large cluster each is one more
# connection.
_ENOUGH: Final = 3


@final
class Turns:
    """One lookup of topics that may be new, which asks several brokers, and for `wait_s` seconds.

    The time begins with the first answer that lacks one of the topics: before, the brokers may have
    been away.
    """

    __slots__ = ("_asked", "_until", "_wait_s")

    def __init__(self, wait_s: float) -> None:
        self._wait_s: float = wait_s
        self._asked: set[int] = set()
        self._until: float | None = None

    @property
    def asked(self) -> Collection[int]:
        """The brokers to ask last."""
        return self._asked if len(self._asked) < _ENOUGH else ()

    @property
    def limit_s(self) -> float | None:
        """How long a broker may take; None until one has answered."""
        return None if self._until is None else _LIMIT_S

    @property
    def is_over(self) -> bool:
        """Whether the answers so far are all that count."""
        return self._until is not None and asyncio.get_running_loop().time() >= self._until

    def go_on(self, broker: int, brokers: Collection[int]) -> bool:
        """Return whether to ask another one of `brokers`, as this one's answer lacks a topic."""
        now = asyncio.get_running_loop().time()
        if self._until is None:
            self._until = now + self._wait_s
        new = broker not in self._asked
        self._asked.add(broker)
        return now < self._until or (new and len(self._asked) < min(_ENOUGH, len(brokers)))
