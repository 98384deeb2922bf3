"""Output that is kept apart until a commit includes its task."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors.log import Outgoing


@final
class NextEpochOutput:
    """Keep, by lot, the output of tasks with calls in flight since their last commit.

    All tasks share one transaction. It may include a task's output only together with the task's
    offsets. So no output of such a task is sent before its commit is certain.
    """

    def __init__(self) -> None:
        self._kept: dict[int, list[tuple[int, Sequence[Outgoing]]]] = {}

    def __bool__(self) -> bool:
        return bool(self._kept)

    def add(self, lot: int, epoch: int, batches: Sequence[Outgoing]) -> None:
        """Keep the output of an epoch."""
        self._kept.setdefault(lot, []).append((epoch, batches))

    def take(self, lots: frozenset[int], epoch: int) -> list[Outgoing]:
        """Remove and return the output of these lots up to an epoch, in order."""
        taken: list[Outgoing] = []
        for lot in lots & self._kept.keys():
            parts = self._kept.pop(lot)
            taken += [outgoing for of, batches in parts if of <= epoch for outgoing in batches]
            if later := [part for part in parts if part[0] > epoch]:
                self._kept[lot] = later
        return taken

    def keep(self, lots: frozenset[int]) -> list[Outgoing]:
        """Drop all lots but these; return the dropped output."""
        gone = [self._kept.pop(lot) for lot in self._kept.keys() - lots]
        return [outgoing for parts in gone for _, batches in parts for outgoing in batches]

    def clear(self) -> None:
        """Drop everything."""
        self._kept.clear()
