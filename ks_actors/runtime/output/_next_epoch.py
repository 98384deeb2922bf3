"""Output that is kept apart until a commit takes the task that it is of."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors.log import Outgoing


@final
class NextEpochOutput:
    """Keep the output of tasks with calls in flight since their last commit, by lot.

    There is one transaction for all tasks: what a task has written may be in it only if the task's offsets are. So nothing of such a task is sent
    before it is known that the commit takes it.
    """

    def __init__(self) -> None:
        self._kept: dict[int, list[tuple[int, Sequence[Outgoing]]]] = {}

    def __bool__(self) -> bool:
        return bool(self._kept)

    def add(self, lot: int, epoch: int, batches: Sequence[Outgoing]) -> None:
        """Keep what belongs to an epoch."""
        self._kept.setdefault(lot, []).append((epoch, batches))

    def take(self, lots: frozenset[int], epoch: int) -> list[Outgoing]:
        """Return what some lots have up to an epoch, in order, and keep it no longer."""
        taken: list[Outgoing] = []
        for lot in lots & self._kept.keys():
            parts = self._kept.pop(lot)
            taken += [outgoing for of, batches in parts if of <= epoch for outgoing in batches]
            if later := [part for part in parts if part[0] > epoch]:
                self._kept[lot] = later
        return taken

    def keep(self, lots: frozenset[int]) -> list[Outgoing]:
        """Forget all lots but these; return what they had."""
        gone = [self._kept.pop(lot) for lot in self._kept.keys() - lots]
        return [outgoing for parts in gone for _, batches in parts for outgoing in batches]

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
