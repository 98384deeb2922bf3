"""Stream time as one node sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, final

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from ks_actors.processors.api._operator import NodeContext


@final
class Clock:
    """Stream time (ms) as one node of one task has seen it, -1 before the first record.

    It is committed along with the task's offsets, under the name of the node and its store. A task
    that takes over or restarts continues from there: a record that was too late before stays too
    late.
    """

    __slots__ = ("time",)

    def __init__(self, context: NodeContext, store: str) -> None:
        name = f"{store}@{context.node}"
        self.time: int = int(context.progress.get(name, -1))
        keep(context, name, self)

    def __index__(self) -> int:
        """Return the time, for each commit to read."""
        return self.time


def keep(context: NodeContext, name: str, clock: object) -> None:
    """Register a clock, which has `__index__`, so that each commit reads it."""
    cast("MutableMapping[str, object]", context.progress)[name] = clock
