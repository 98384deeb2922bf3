"""Wait for async jobs of serdes, such as lookups of schemas in a registry, in calls."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, final

from ks_actors._errors import NotRunning, RegistryError, RegistryUnavailable
from ks_actors.serdes import needs_to_write

if TYPE_CHECKING:
    from ks_actors.log import Fetched
    from ks_actors.serdes import NeedsToRead
    from ks_actors.topics._formats import TopicFormat
    from ks_actors.topics._sender import RecordSender


@final
class _Lookup:
    """A lookup for the calls that send to one topic."""

    __slots__ = ("task", "waiting")

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task
        self.waiting = 0


@final
class Lookups:
    """Await the async jobs of serdes before calls write or read with the serdes.

    Calls that send to the same topic wait for one lookup, and continue in their order. If no call
    waits for a lookup any more, the lookup is cancelled.
    """

    def __init__(self, sender: RecordSender, *, who: str, timeout_ms: int) -> None:
        self._sender = sender
        self._who = who
        self._timeout_ms = timeout_ms
        self._writes: dict[TopicFormat, _Lookup] = {}
        self._reads: set[asyncio.Task[None]] = set()

    async def before_writing(self, form: TopicFormat, deadline: float) -> None:
        """Await the async jobs of serializers until a time of the loop.

        Raises RegistryError, and NotRunning after the close.
        """
        sender = self._sender
        found = self._writes.get(form)
        if found is None:
            work = needs_to_write(form.name, *form.serdes).meet()
            task = sender.spawn(work, f"find the schemas of topic {form.name}")
            found = self._writes[form] = _Lookup(task)
        task = found.task
        found.waiting += 1
        unsent = f"no record was sent to topic {form.name}"
        try:
            await asyncio.wait((task,), timeout=max(0.0, deadline - sender.loop.time()))
            if not task.done():
                raise RegistryUnavailable(
                    f"{unsent}: its serdes {_named(form)} have not found their schemas within "
                    f"{self._timeout_ms} ms (delivery_timeout_ms)"
                )
            self._check(task, unsent)
            sender.check_open()
        finally:
            found.waiting -= 1
            # Later calls must not overtake those that wait.
            if not found.waiting:
                del self._writes[form]
                form.ready = _end(task)

    async def before_reading(self, needs: NeedsToRead, fetched: Fetched) -> None:
        """Await the async jobs of deserializers for these records.

        Raises RegistryError, and NotRunning after the close.
        """
        needs.note(fetched.batch)
        if not needs.needs.pending:
            return
        task = self._sender.spawn(
            needs.needs.meet(), f"find the schemas of records of {fetched.partition}"
        )
        self._reads.add(task)
        try:
            await asyncio.wait((task,))
            self._check(task, f"records of {fetched.partition} are not read")
        finally:
            self._reads.discard(task)
            _end(task)

    def _check(self, task: asyncio.Task[None], what: str) -> None:
        """Raise the error of a lookup that has ended."""
        if task.cancelled():
            raise NotRunning(f"{what}: {self._who} was closed before their schemas were found")
        error = task.exception()
        if isinstance(error, RegistryError):
            # A new error for each caller, with its own traceback.
            raise type(error)(f"{what}: {error}", status=error.status, code=error.code) from error
        if error is not None:
            raise error

    async def close(self, until: float) -> None:
        """Wait for lookups of calls that send until a time of the loop; end all others."""
        for task in self._reads:
            task.cancel()
        tasks = [each.task for each in self._writes.values()]
        left = until - self._sender.loop.time()
        if tasks and left > 0:
            # The calls that wait continue first.
            await asyncio.wait(tasks, timeout=None if left == inf else left)
        for task in tasks:
            task.cancel()


def _named(form: TopicFormat) -> str:
    return " and ".join(repr(serde) for serde in form.serdes if serde is not None)


def _end(task: asyncio.Task[None]) -> bool:
    """Cancel a task unless it has ended; return whether it has succeeded."""
    return not task.cancel() and not task.cancelled() and task.exception() is None
