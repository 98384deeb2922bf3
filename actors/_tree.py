"""The live view of a system: taken from outside, without a message, at any moment."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from actors._cell import Cell


class ActorInfo(msgspec.Struct, frozen=True):
    """One actor as it is now.

    `current` is the type of what it is handling (never the content, which may be secret), `busy_for` the seconds since that turn began.
    `depth` counts queued messages, `processed` and `restarts` since the spawn, `refused` what a full or stopped mailbox did not take. `busy` is the
    seconds spent in finished turns, waiting included.
    """

    path: str
    state: str
    depth: int
    current: str | None
    busy_for: float
    processed: int
    busy: float
    restarts: int
    refused: int


def walk(family: Iterable[Cell]) -> Iterator[ActorInfo]:
    """Yield the actors of `family` and all below, parents before children, siblings in the order in which they were started."""
    for cell in family:
        yield _info(cell)
        yield from walk(cell.offspring())


def _info(cell: Cell) -> ActorInfo:
    current = cell.current
    return ActorInfo(
        path=cell.path,
        state=cell.state.value,
        depth=cell.inbox.depth(),
        current=None if current is None else type(current).__qualname__,
        busy_for=0.0 if current is None else perf_counter() - cell.since,
        processed=cell.processed,
        busy=cell.busy,
        restarts=cell.restarts,
        refused=cell.inbox.refused,
    )
