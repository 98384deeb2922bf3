"""Calls of several steps, which end by one deadline."""

from __future__ import annotations

import asyncio
import math
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ks_actors.log.kafka.client._options import KafkaOptions

P = ParamSpec("P")
T = TypeVar("T")


class _Client(Protocol):
    options: KafkaOptions


class _Caller(Protocol):
    @property
    def _client(self) -> _Client: ...


C = TypeVar("C", bound=_Caller)


class _Call:
    """A call under way, and the loop time by which it ends.

    Tasks, callbacks and timers that begin during a call inherit its context for good. The deadline
    must not outlive the call: they may belong to others, such as a fetcher that hears of a topic.
    """

    __slots__ = ("ends",)

    def __init__(self, ends: float) -> None:
        self.ends: float = ends


_call: ContextVar[_Call | None] = ContextVar("call", default=None)


def end_of_step(limit_ms: int) -> float:
    """Return the loop time by which a step ends: after its own limit, or with the whole call."""
    ends = asyncio.get_running_loop().time() + limit_ms / 1000
    call = _call.get()
    return ends if call is None else min(ends, call.ends)


def as_one_call(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[C, P], Coroutine[Any, Any, T]]:
    """Limit all steps of a method together to the client's `api_timeout_ms`."""

    @wraps(method)
    async def limited(self: C, /, *args: P.args, **kwargs: P.kwargs) -> T:
        call = _Call(end_of_step(self._client.options.api_timeout_ms))
        token = _call.set(call)
        try:
            return await method(self, *args, **kwargs)
        finally:
            call.ends = math.inf
            _call.reset(token)

    return limited
