"""Injected errors and delays, for tests."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Literal, TypeAlias, final, get_args

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
"""The port's methods by name, which can fail or wait on request.

`commit` is the commit of a transaction, `commit_offsets` is `Membership.commit`.
"""


_WITH_AFTER: Final = ("abort", "commit", "commit_offsets", "send")


@final
class Faults:
    """Injected errors by operation, in order, and the events for which blocked operations wait."""

    __slots__ = ("_after", "_before", "_blocked")

    def __init__(self) -> None:
        self._before: dict[str, deque[Exception]] = {}
        self._after: dict[str, deque[Exception]] = {}
        self._blocked: dict[str, asyncio.Event] = {}

    def hold(self, operation: Operation) -> asyncio.Event:
        """Make calls of `operation` wait at their start until the returned event is set."""
        _check_operation(operation)
        self._blocked[operation] = event = asyncio.Event()
        return event

    async def wait(self, operation: Operation) -> None:
        """Wait while the operation is blocked."""
        if self._blocked and (event := self._blocked.get(operation)) is not None:
            await event.wait()

    def order(self, operation: Operation, error: Exception, *, times: int, after: bool) -> None:
        """Make the next `times` calls of `operation` fail."""
        _check_operation(operation)
        if not isinstance(error, Exception):
            raise TypeError(f"the fault of {operation} is {error!r}: give an exception")
        if after and operation not in _WITH_AFTER:
            raise ValueError(
                f"after=True is for {', '.join(_WITH_AFTER)}: {operation} changes nothing, so an "
                "error after it equals an error before it; leave it out"
            )
        faults = self._after if after else self._before
        faults.setdefault(operation, deque()).extend([error] * times)

    def before(self, operation: Operation) -> None:
        """Raise an injected error before the operation."""
        if self._before:
            _raise_next(self._before, operation)

    def after(self, operation: Operation) -> None:
        """Raise an injected error after the operation."""
        if self._after:
            _raise_next(self._after, operation)


def _check_operation(operation: str) -> None:
    if operation not in get_args(Operation):
        raise ValueError(
            f"a log has no operation {operation!r}: give one of {', '.join(get_args(Operation))}"
        )


def _raise_next(faults: dict[str, deque[Exception]], operation: Operation) -> None:
    errors = faults.get(operation)
    if not errors:
        return
    error = errors.popleft()
    if not errors:
        del faults[operation]
    raise error
