"""Serdes that must await something, such as a schema of a registry, before they work.

The functions of serdes cannot wait, because they are called while records are processed. So before
its start, the app makes all functions once under `collecting`: serdes then add async jobs, the
"needs", which the app awaits. Functions made so read records only to add further jobs.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import repeat
from typing import TYPE_CHECKING, Any, final

from ks_actors.serdes._headers import reader, writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterator

    from ks_actors.records import Batch
    from ks_actors.serdes._headers import MutableHeaders
    from ks_actors.serdes._serde import Serde

    Probe = Callable[[bytes, MutableHeaders], Any]

_AT_ONCE = 8
"""The most jobs that are awaited at the same time."""


@final
class Needs:
    """Async jobs that serdes require, such as the lookup of a schema; each is awaited once."""

    def __init__(self) -> None:
        self._jobs: dict[Hashable, Callable[[], Awaitable[None]]] = {}
        self.touched: int = 0
        """How many functions made under `collecting` may add jobs."""

    @property
    def pending(self) -> bool:
        """Whether `meet` has anything to await."""
        return bool(self._jobs)

    def add(self, need: Hashable, job: Callable[[], Awaitable[None]]) -> None:
        """Add the job for a need, unless the need has a job already."""
        self._jobs.setdefault(need, job)

    async def meet(self) -> None:
        """Await all jobs added so far. Raises the first job's error."""
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
    """Have serdes add jobs to `needs` when their functions are made in this block."""
    token = _collecting.set(needs)
    try:
        yield
    finally:
        _collecting.reset(token)


def collected() -> Needs | None:
    """Return the Needs to which a serde adds its jobs; None outside of `collecting`."""
    needs = _collecting.get()
    if needs is not None:
        needs.touched += 1
    return needs


def needs_to_write(topic: str, key: Serde[Any] | None, value: Serde[Any] | None) -> Needs:
    """Return the jobs to await before these serdes write records of `topic`."""
    needs = Needs()
    with collecting(needs):
        for serde, is_key in ((key, True), (value, False)):
            if serde is not None:
                writer(serde, topic, is_key=is_key)
    return needs


@final
class NeedsToRead:
    """The jobs to await before serdes read records of `topic`.

    The jobs are added to `needs`, if given, else to a new Needs. `waits` tells whether a serde may
    add any.
    """

    def __init__(
        self,
        topic: str,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        needs: Needs | None = None,
    ) -> None:
        self.needs: Needs = Needs() if needs is None else needs
        self._probes = self._probe(topic, key, is_key=True), self._probe(topic, value, is_key=False)
        self.waits: bool = self._probes != (None, None)

    def _probe(self, topic: str, serde: Serde[Any] | None, *, is_key: bool) -> Probe | None:
        if serde is None:
            return None
        before = self.needs.touched
        with collecting(self.needs):
            probe = reader(serde, topic, is_key=is_key)
        return None if self.needs.touched == before else probe

    async def meet(self, batch: Batch) -> None:
        """Await the jobs for these records. Raises the first job's error."""
        self.note(batch)
        await self.needs.meet()

    def note(self, batch: Batch) -> None:
        """Add the jobs for these records."""
        for probe, column in zip(self._probes, (batch.keys, batch.values), strict=True):
            if probe is None:
                continue
            headers: Any = repeat(()) if batch.headers is None else batch.headers
            for data, own in zip(column, headers, strict=False):
                if data is None:
                    continue
                try:
                    probe(data, list(own))
                except Exception:  # noqa: BLE001, S112 - reported when the record is decoded
                    continue
