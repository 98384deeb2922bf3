"""The live view of a system, taken from outside without messages, at any moment."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from actors.actor import Cell


class ActorInfo(msgspec.Struct, frozen=True):
    """One actor at this moment.

    `current` is the type of its current message (never the content, which may be secret),
    `busy_for` the seconds since that turn began. `depth` counts queued messages, `processed` and
    `restarts` count since the spawn, `refused` counts messages refused by a full or stopped
    mailbox. `busy` is the seconds spent in finished turns, waiting included.
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
    """Yield the actors of `family` and below, parents before children, siblings in start order."""
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
