"""Loggers of components, whose log records name client, task, topic, partition and offset."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, final

from ks_actors.system import Later

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

if TYPE_CHECKING:
    from actors import events
else:
    events = Later("actors.events")

_PACKAGE = "ks_actors"


@final
class LogClient:
    """The name of a client in log records; it may change, when its process id is known."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name: str = name

    @contextmanager
    def named(self) -> Iterator[None]:
        """Name the client in records of this block, and of all tasks that begin in it."""
        token = _client.set(self)
        try:
            yield
        finally:
            _client.reset(token)


_client: ContextVar[LogClient | None] = ContextVar("ks_actors client", default=None)


def current_client() -> LogClient | None:
    """Return the client of this context."""
    return _client.get()


def name_client(name: str) -> None:
    """Give the client of this context another name, also where tasks have begun already."""
    client = _client.get()
    if client is not None:
        client.name = name


@final
class ComponentLog(logging.LoggerAdapter[logging.Logger]):
    """A logger that adds `client_id`, and `task`, `topic`, `partition` and `offset` where known.

    The fields come from task ids, partitions and errors among the arguments of a message; `extra`
    overrides them. A disabled level costs nothing. The traceback of an error has only the frames of
    the user's code, and is logged once, even if several entries report the error; at DEBUG
    tracebacks are whole.
    """

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name))

    def log(
        self,
        level: int,
        msg: object,
        *args: Any,
        exc_info: Any = None,
        stack_info: bool = False,
        stacklevel: int = 1,
        extra: Mapping[str, Any] | None = None,
        **kwargs: object,  # noqa: ARG002 - the base class has them
    ) -> None:
        """Log a record, if the logger is enabled for its level."""
        if not self.isEnabledFor(level):
            return
        fields = _fields(args)
        client = _client.get()
        if client is not None:
            fields["client_id"] = client.name
        if extra is not None:
            fields.update(extra)
        logger = self.logger
        # Skip this frame, which is not the caller's.
        file, line, function, stack = logger.findCaller(stack_info, stacklevel + 1)
        if exc_info and not isinstance(exc_info, BaseException | tuple):
            exc_info = sys.exc_info()[1]
        if isinstance(exc_info, BaseException):
            exc_info = (
                (type(exc_info), exc_info, exc_info.__traceback__)
                if self.isEnabledFor(logging.DEBUG)
                else events.to_tell(exc_info)
            )
        record = logger.makeRecord(
            logger.name, level, file, line, msg, args, exc_info or None, function, None, stack
        )
        # Not as `extra` of `logging`, which raises KeyError where the program's own record factory
        # has set a field of the same name: a line in the log must never end an app.
        record.__dict__.update(fields)
        logger.handle(record)


def _fields(arguments: Iterable[Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for argument in arguments:
        tells = getattr(argument, "log_fields", None)
        if tells is not None:
            for name, value in tells().items():
                fields.setdefault(name, value)
    return fields


def component_log(module: str) -> ComponentLog:
    """Return the logger of a module's component: `ks_actors.commit` for `….runtime.commit._x`."""
    parts = [part for part in module.split(".") if not part.startswith("_")]
    if parts[:2] == [_PACKAGE, "runtime"] and len(parts) > 2:  # noqa: PLR2004 - what is below
        parts.remove("runtime")
    return ComponentLog(".".join(parts))
