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
# The loop time by which a task's current call ends.
_ends: ContextVar[float] = ContextVar("ends", default=math.inf)


def end_of_step(limit_ms: int) -> float:
    """Return the loop time by which a step ends: after its own limit, or with the whole call."""
    return min(asyncio.get_running_loop().time() + limit_ms / 1000, _ends.get())


def as_one_call(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[C, P], Coroutine[Any, Any, T]]:
    """Limit all steps of a method together to the client's `api_timeout_ms`."""

    @wraps(method)
    async def limited(self: C, /, *args: P.args, **kwargs: P.kwargs) -> T:
        token = _ends.set(end_of_step(self._client.options.api_timeout_ms))
        try:
            return await method(self, *args, **kwargs)
        finally:
            _ends.reset(token)

    return limited
