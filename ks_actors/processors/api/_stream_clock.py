"""Stream time as one node sees it."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, cast, final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, MutableMapping

    from ks_actors.processors.api._operator import NodeContext

ALL_CLOSED: Final = 1 << 65
"""A time after all others, even after subtracting a window's size and grace period.

A node's stream time, and its mark, have this value once all windows have closed, also those that
end after the last possible time, 2**63 - 1 ms.
"""
_CLOCK: Final = "@"
_IDLE: Final = "@idle"


@final
class Clock:
    """Stream time (ms) as one node of one task has seen it, -1 before the first record.

    It is committed along with the task's offsets, under the name of the node's store, because names
    of nodes change when a topology grows. Nodes of a cogroup share a store, so each gives the
    number of its `stream`. A task that takes over or restarts continues from the committed time: a
    record that was too late before stays too late.
    """

    __slots__ = ("time",)

    def __init__(self, context: NodeContext, store: str, stream: int | None = None) -> None:
        name, former = _clock_name(store, stream or 0), _former_times(context.progress, store)
        # A node that is made again finds its clock here.
        found = context.progress.get(name)
        committed = None if found is None else int(found)
        if stream is None:
            # The former time is later if an older version of the app has run the task meanwhile.
            self.time: int = max(-1 if committed is None else committed, *former, -1)
        elif committed is not None:
            self.time = committed
        else:
            # Nothing tells the streams' former times apart. Keeping a late record is better than
            # dropping one in time.
            self.time = min(former, default=-1)
        keep(context, name, self)

    def __index__(self) -> int:
        """Return the stream time. Every commit reads the clock this way."""
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
    """Return whether a name of a committed number is that of a stream time."""
    return name.startswith(_CLOCK)


def is_mark_name(name: str, stores: Collection[str]) -> bool:
    """Return whether a name of a committed number is that of the mark of one of these stores."""
    return name.endswith(_IDLE) and name.removesuffix(_IDLE) in stores


def _clock_name(store: str, number: int) -> str:
    # Short, as a broker limits the metadata of an offset, which has all clocks of a task.
    digest = blake2b(f"{store}@{number}".encode(), digest_size=6).digest()
    return f"{_CLOCK}{urlsafe_b64encode(digest).decode('ascii')}"


def _former_times(progress: Mapping[str, int], store: str) -> list[int]:
    """Return the times as versions before 0.1 committed them, by store and node.

    Nodes may have other names by now.
    """
    return [
        time
        for name, time in progress.items()
        if name.startswith(f"{store}@")
        and " " not in name
        and not name.endswith(_IDLE)
        and type(time) is int
    ]
