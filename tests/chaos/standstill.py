"""The progress of the committed output, and its standstills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, final

_SHORTEST_S = 0.4


class Stall(NamedTuple):
    """A time in which the committed output of a partition (None: of all) did not advance while input of it waited."""

    partition: int | None
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@final
class Progress:
    """For each partition of the input, the number of records behind the highest one with an update.

    Where updates do not tell of which record they are, it is the sum of what the partition's keys have been counted to.
    """

    def __init__(self, partition_of: Mapping[bytes, int], partitions: int) -> None:
        self.done: list[int] = [0] * partitions
        self.partition_of: Mapping[bytes, int] = partition_of
        self._highest: dict[bytes, int] = {}
        self._told: bool | None = None

    def note(self, key: bytes, total: int, number: int | None) -> bool:
        """Take note of an update; return whether it is of a record that is further than those before."""
        if self._told is None:
            self._told = number is not None
        partition = self.partition_of[key]
        if self._told:
            if number is None or number < self.done[partition]:
                return False
            self.done[partition] = number + 1
            return True
        more = total - self._highest.get(key, 0)
        if more > 0:
            self._highest[key] = total
            self.done[partition] += more
        return more > 0


@final
class Standstills:
    """Find them in a series of observations: the written and the processed part of each partition."""

    def __init__(self, partitions: int) -> None:
        # Since when each partition has stood still, and at the end all together.
        self.since: list[float | None] = [None] * (partitions + 1)
        self._partitions: int = partitions
        self._before: list[int] = [0] * partitions
        self._stalls: list[Stall] = []

    def look(self, now: float, written: Sequence[int], done: Sequence[int]) -> int:
        """Return how much more is done than the last time."""
        moved = [is_done > was for is_done, was in zip(done, self._before, strict=True)]
        gain = sum(done) - sum(self._before)
        self._before = list(done)
        waiting = [all_of_it > is_done for all_of_it, is_done in zip(written, done, strict=True)]
        for place, (waits, moves) in enumerate(zip([*waiting, any(waiting)], [*moved, any(moved)], strict=True)):
            since = self.since[place]
            if since is not None and (moves or not waits):
                if now - since > _SHORTEST_S:
                    self._stalls.append(self._stall(place, since, now))
                self.since[place] = None
            if self.since[place] is None and waits:
                self.since[place] = now
        return gain

    def reset(self, now: float) -> None:
        """Forget all that was before."""
        self._stalls = []
        self.since = [None if since is None else now for since in self.since]

    def until(self, now: float) -> list[Stall]:
        """Return all of them, those that have not ended included."""
        return self._stalls + [self._stall(place, since, now) for place, since in enumerate(self.since) if since is not None]

    def _stall(self, place: int, begin: float, end: float) -> Stall:
        return Stall(None if place == self._partitions else place, begin, end)
