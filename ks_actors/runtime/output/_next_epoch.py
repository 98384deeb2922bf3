"""Output that is kept apart until a commit includes its task."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors.log import Outgoing


@final
class NextEpochOutput:
    """Keep, by output id, the output of tasks with calls in flight since their last commit.

    All tasks share one transaction. It may include a task's output only together with the task's
    offsets. So no output of such a task is sent before its commit is certain.
    """

    def __init__(self) -> None:
        self._kept: dict[int, list[tuple[int, Sequence[Outgoing]]]] = {}

    def __bool__(self) -> bool:
        return bool(self._kept)

    def add(self, output_id: int, epoch: int, batches: Sequence[Outgoing]) -> None:
        """Keep the output of an epoch."""
        self._kept.setdefault(output_id, []).append((epoch, batches))

    def take(self, output_ids: frozenset[int], epoch: int) -> list[Outgoing]:
        """Remove and return the output with these ids up to an epoch, in order."""
        taken: list[Outgoing] = []
        for output_id in output_ids & self._kept.keys():
            parts = self._kept.pop(output_id)
            taken += [outgoing for of, batches in parts if of <= epoch for outgoing in batches]
            # The task was processed after the freeze: its offsets are in the next commit.
            if later := [part for part in parts if part[0] > epoch]:
                self._kept[output_id] = later
        return taken

    def retain(self, output_ids: frozenset[int]) -> list[Outgoing]:
        """Drop the output with all other ids; return the dropped output."""
        gone = [self._kept.pop(output_id) for output_id in self._kept.keys() - output_ids]
        return [outgoing for parts in gone for _, batches in parts for outgoing in batches]

    def clear(self) -> None:
        """Drop everything."""
        self._kept.clear()
