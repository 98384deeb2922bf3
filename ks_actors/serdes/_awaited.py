"""Serdes that must await something, such as a schema of a registry, before they work.

Their functions cannot wait: they are called within the processing of records. So the app makes all
functions once under `collecting`, before its start, and awaits the needs that serdes note then.
Functions made under `collecting` read records only to note further needs.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterator

_AT_ONCE = 8
"""The number of needs that are awaited at once."""


@final
class Needs:
    """The needs of serdes that must be awaited, each once."""

    def __init__(self) -> None:
        self._jobs: dict[Hashable, Callable[[], Awaitable[None]]] = {}
        self.touched: int = 0
        """The number of functions made under `collecting` that may note needs."""

    def add(self, need: Hashable, job: Callable[[], Awaitable[None]]) -> None:
        """Note a need, and the job that meets it."""
        self._jobs.setdefault(need, job)

    async def meet(self) -> None:
        """Await all needs noted so far. Raises the first job's error."""
        if not self._jobs:
            return
        jobs, self._jobs = list(self._jobs.values()), {}
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(job: Callable[[], Awaitable[None]]) -> None:
            async with limit:
                await job()

        tasks = [asyncio.ensure_future(one(job)) for job in jobs]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()


_collecting: ContextVar[Needs | None] = ContextVar("collecting", default=None)


@contextmanager
def collecting(needs: Needs) -> Iterator[None]:
    """Have serdes note their needs when their functions are made in this block."""
    token = _collecting.set(needs)
    try:
        yield
    finally:
        _collecting.reset(token)


def collected() -> Needs | None:
    """Return the place for needs, None outside of `collecting`."""
    needs = _collecting.get()
    if needs is not None:
        needs.touched += 1
    return needs
