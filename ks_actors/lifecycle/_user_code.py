"""Whether a call to an app comes from code that this app itself awaits."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ks_actors.lifecycle._component_log import current_client

if TYPE_CHECKING:
    from ks_actors.lifecycle._component_log import LogClient


class _Caller(NamedTuple):
    client: LogClient | None
    task: asyncio.Task[Any] | None


_caller: Final[ContextVar[_Caller | None]] = ContextVar("ks_actors caller", default=None)


def enter_user_code() -> None:
    """Note that the app of this context awaits the running task, which calls a user's code."""
    _caller.set(_Caller(current_client(), asyncio.current_task()))


def leave_user_code() -> None:
    """Note that this context belongs to no code of a user."""
    _caller.set(None)


def called_from_within(client: LogClient) -> bool:
    """Return whether the app of this client awaits this code, or code that began this task."""
    caller = _caller.get()
    return caller is not None and caller.client is client


def awaited_by_app(client: LogClient) -> bool:
    """Return whether the app of this client awaits the running task itself."""
    caller = _caller.get()
    return caller is not None and caller.client is client and caller.task is asyncio.current_task()
