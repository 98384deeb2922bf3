"""Errors and delays on order, for tests of those who use a log."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Literal, TypeAlias, final

Operation: TypeAlias = Literal[
    "abort",
    "begin_offsets",
    "commit",
    "commit_offsets",
    "committed",
    "create_partitions",
    "create_topics",
    "delete_records",
    "delete_topics",
    "describe_topics",
    "end_offsets",
    "fetch",
    "group_ids",
    "group_members",
    "group_offsets",
    "join",
    "leave",
    "offsets_for_times",
    "producer",
    "remove_members",
    "send",
    "set_group_offsets",
    "transactional_producer",
]
"""The port's methods by name, which can be made to fail, or be held up; `commit` is the end of a transaction, `commit_offsets` of a membership."""


@final
class Faults:
    """Errors that are still to be raised, by operation, in the order they were ordered; and what holds operations up."""

    __slots__ = ("_after", "_before", "_held")

    def __init__(self) -> None:
        self._before: dict[str, deque[Exception]] = {}
        self._after: dict[str, deque[Exception]] = {}
        self._held: dict[str, asyncio.Event] = {}

    def hold(self, operation: Operation) -> asyncio.Event:
        """Have calls of `operation` wait, before they do anything, until the event is set that is returned."""
        self._held[operation] = event = asyncio.Event()
        return event

    async def wait(self, operation: Operation) -> None:
        """Wait for as long as the operation is held up."""
        if self._held and (event := self._held.get(operation)) is not None:
            await event.wait()

    def order(self, operation: Operation, error: Exception, *, times: int, after: bool) -> None:
        """Have the next `times` calls of `operation` fail."""
        faults = self._after if after else self._before
        faults.setdefault(operation, deque()).extend([error] * times)

    def before(self, operation: Operation) -> None:
        """Raise what was ordered for before anything is done."""
        if self._before:
            _raise_next(self._before, operation)

    def after(self, operation: Operation) -> None:
        """Raise what was ordered for when everything is done."""
        if self._after:
            _raise_next(self._after, operation)


def _raise_next(faults: dict[str, deque[Exception]], operation: Operation) -> None:
    errors = faults.get(operation)
    if not errors:
        return
    error = errors.popleft()
    if not errors:
        del faults[operation]
    raise error
