"""Stream time as one node sees it."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, cast, final

if TYPE_CHECKING:
    from collections.abc import Collection, MutableMapping

    from ks_actors.processors.api._operator import NodeContext

_CLOCK: Final = "@"
_IDLE: Final = "@idle"


@final
class Clock:
    """Stream time (ms) as one node of one task has seen it, -1 before the first record.

    It is committed along with the task's offsets, by the name of the node's store: names of nodes
    change when a topology grows. Nodes that share a store are numbered. A task that takes over or
    restarts continues from there: a record that was too late before stays too late.
    """

    __slots__ = ("time",)

    def __init__(self, context: NodeContext, store: str) -> None:
        progress, number = cast("MutableMapping[str, object]", context.progress), 0
        while isinstance(progress.get(name := _clock_name(store, number)), Clock):
            number += 1
        self.time: int = int(
            cast("int", progress.get(name, _former_time(progress, store, context.node)))
        )
        keep(context, name, self)

    def __index__(self) -> int:
        """Return the time, for each commit to read."""
        return self.time


def keep(context: NodeContext, name: str, clock: object) -> None:
    """Register a clock, which has `__index__`, so that each commit reads it."""
    cast("MutableMapping[str, object]", context.progress)[name] = clock


def idle_mark(context: NodeContext, store: str) -> str:
    """Return the name of the latest end of a window that the wall clock has closed."""
    progress, name = context.progress, f"{store}{_IDLE}"
    former = progress.pop(f"{store}@{context.node} idle", None)
    if former is not None:
        progress.setdefault(name, former)
    return name


def is_clock_name(name: str) -> bool:
    """Return whether a number is a stream time by its name."""
    return name.startswith(_CLOCK)


def is_mark_name(name: str, stores: Collection[str]) -> bool:
    """Return whether a number is the mark of one of these stores."""
    return name.endswith(_IDLE) and name.removesuffix(_IDLE) in stores


def _clock_name(store: str, number: int) -> str:
    # Short, as a broker limits what is committed with an offset, and all clocks of a task are.
    digest = blake2b(f"{store}@{number}".encode(), digest_size=6).digest()
    return f"{_CLOCK}{urlsafe_b64encode(digest).decode('ascii')}"


def _former_time(progress: MutableMapping[str, object], store: str, node: str) -> int:
    """Return the time as versions before 0.1 committed it, by store and node; else -1.

    The node may have another name by now.
    """
    found = progress.get(f"{store}@{node}")
    if type(found) is int:
        return found
    former = [
        time
        for name, time in progress.items()
        if name.startswith(f"{store}@") and " " not in name and type(time) is int
    ]
    return max(former, default=-1)
