"""Serdes that must await something, such as a schema of a registry, before they work.

Their functions cannot wait: they are called within the processing of records. So the app makes all
functions once under `collecting`, before its start, and awaits the needs that serdes note then.
Functions made under `collecting` read records only to note further needs.
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
"""The number of needs that are awaited at once."""


@final
class Needs:
    """The needs of serdes that must be awaited, each once."""

    def __init__(self) -> None:
        self._jobs: dict[Hashable, Callable[[], Awaitable[None]]] = {}
        self.touched: int = 0
        """The number of functions made under `collecting` that may note needs."""

    @property
    def pending(self) -> bool:
        """Whether `meet` has anything to await."""
        return bool(self._jobs)

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


def needs_to_write(topic: str, key: Serde[Any] | None, value: Serde[Any] | None) -> Needs:
    """Return the needs of serdes that must be met before they write records of `topic`."""
    needs = Needs()
    with collecting(needs):
        for serde, is_key in ((key, True), (value, False)):
            if serde is not None:
                writer(serde, topic, is_key=is_key)
    return needs


@final
class NeedsToRead:
    """The needs of serdes that must be met before they read records of `topic`.

    They are added to `needs`, if given, else to needs of their own. `waits` tells whether a serde
    may have any.
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
        """Await the needs of these records. Raises the first job's error."""
        self.note(batch)
        await self.needs.meet()

    def note(self, batch: Batch) -> None:
        """Note the needs of these records."""
        for probe, column in zip(self._probes, (batch.keys, batch.values), strict=True):
            if probe is None:
                continue
            headers: Any = repeat(()) if batch.headers is None else batch.headers
            for data, own in zip(column, headers, strict=False):
                if data is None:
                    continue
                try:
                    probe(data, list(own))
                except Exception:  # noqa: BLE001, S112 - told when the record is decoded
                    continue
