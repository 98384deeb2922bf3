"""Options for functions and processors that are `async def`."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

import msgspec
from msgspec.structs import force_setattr

from ks_actors._errors import TopologyError
from ks_actors.processors.api._argument_checks import check_kind, check_whole, checked_ms
from ks_actors.processors.api._plain_results import promises_awaitable, unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable

Order: TypeAlias = Literal["key", "partition", "none"]
"""The scope of ordering: records of one key, of one partition, or no order."""


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """Repeat a failed call, up to `attempts` calls in all.

    Wait `backoff_ms` before the first repetition, then twice as long each time, up to
    `max_backoff_ms`. Only calls that raise an error of the types `on` are repeated; a call that
    takes too long raises TimeoutError.
    """

    attempts: int = 3
    backoff_ms: int | timedelta = 100
    max_backoff_ms: int | timedelta = 10_000
    on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        check_whole(self.attempts, role="attempts", of="Retry")
        backoff = checked_ms(self.backoff_ms, role="backoff_ms", of="Retry")
        most = checked_ms(self.max_backoff_ms, role="max_backoff_ms", of="Retry")
        force_setattr(self, "backoff_ms", backoff)
        force_setattr(self, "max_backoff_ms", most)
        on: Any = self.on
        if not isinstance(on, tuple) or not all(
            isinstance(kind, type) and issubclass(kind, Exception) for kind in on
        ):
            raise TopologyError(
                f"on of Retry is {on!r}: give a tuple of error types, such as (OSError,)"
            )
        if self.attempts < 1 or not 0 <= backoff <= most:
            raise TopologyError(
                f"{self} is not possible: give attempts of 1 or more, and a backoff_ms from 0 to "
                "max_backoff_ms"
            )


class AsyncOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Concurrency, order and time limit of the asynchronous calls in one task.

    `max_in_flight` calls run at the same time; each may take `timeout_ms`, and a retry counts as a
    new call. With order "key" the calls of one key follow each other. With "partition" all calls
    run side by side, and their results are forwarded in the order of the records. With "none"
    results are forwarded in the order of completion.
    """

    max_in_flight: int = 100
    order: Order = "key"
    timeout_ms: int | timedelta | None = None
    retry: Retry | None = None

    def __post_init__(self) -> None:
        check_whole(self.max_in_flight, role="max_in_flight", of="an async function")
        if self.timeout_ms is not None:
            timeout = checked_ms(self.timeout_ms, role="timeout_ms", of="an async function")
            force_setattr(self, "timeout_ms", timeout)
            if timeout < 1:
                raise TopologyError(
                    f"timeout_ms is {timeout}: give 1 or more, or None for no limit"
                )
        if self.retry is not None:
            check_kind(
                self.retry,
                Retry,
                role="retry",
                of="an async function",
                remedy="give a Retry, such as Retry(attempts=5)",
            )
        if self.max_in_flight < 1:
            raise TopologyError(f"max_in_flight is {self.max_in_flight}: give 1 or more")
        if self.order not in ("key", "partition", "none"):
            raise TopologyError(f"order is {self.order!r}: give 'key', 'partition' or 'none'")


class AsyncArguments(TypedDict, total=False):
    """The keyword arguments of operations that accept an `async def`; see AsyncOptions."""

    max_in_flight: int
    order: Order
    timeout_ms: int | timedelta | None
    retry: Retry | None


def is_async(function: Callable[..., object]) -> bool:
    """Return whether a call of this function gives a coroutine.

    It does for an `async def`, also behind a partial or as the `__call__` of an object.
    """
    function = unwrapped(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004 - its kind matters
    )


def async_options(
    function: Callable[..., object], arguments: AsyncArguments, where: str
) -> AsyncOptions | None:
    """Return the options for an async function, None for a plain one.

    Raises TopologyError for a plain function with options, and for a function that promises an
    awaitable by its annotation.
    """
    if is_async(function):
        return options_of(arguments, where)
    check_promise(function, where)
    if arguments:
        options_of(arguments, where)
        raise TopologyError(
            f"{', '.join(arguments)} of {where} have no meaning, because {function!r} is not an "
            "'async def': make it one, or remove them"
        )
    return None


def check_promise(function: Callable[..., object], where: str) -> None:
    """Raise TopologyError if a plain function returns an awaitable, by its annotation."""
    if promises_awaitable(function):
        raise TopologyError(
            f"{function!r} of {where} is not an 'async def' and returns an awaitable, by its "
            "annotation, which nothing awaits: give the 'async def' itself"
        )


def options_of(arguments: AsyncArguments, where: str) -> AsyncOptions:
    """Return the options that an operation was given.

    Raises TopologyError, which names the operation, for unknown or invalid options.
    """
    if unknown := sorted(arguments.keys() - AsyncArguments.__annotations__.keys()):
        known = ", ".join(AsyncArguments.__annotations__)
        raise TopologyError(
            f"{where} takes no argument {', '.join(unknown)}: besides its own it takes {known}, of "
            "an 'async def'"
        )
    try:
        return AsyncOptions(**arguments)
    except TopologyError as error:
        raise TopologyError(f"{where}: {error}") from None
