"""How far stores have come in their inputs."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Self, final

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
class Position:
    """Up to which record of each partition the inputs are contained in what a query has read: offsets by topic and partition, the record included.

    Does not change: `with_component` and `merge` return another one. `Position.of(position.offsets)` is equal to it, so it can travel as JSON.
    """

    __slots__ = ("_offsets",)

    def __init__(self) -> None:
        self._offsets: dict[str, dict[int, int]] = {}

    @classmethod
    def empty(cls) -> Self:
        """Return the position of what has read nothing."""
        return cls()

    @classmethod
    def of(cls, offsets: Mapping[str, Mapping[int, int]]) -> Self:
        """Return the position with these offsets, by topic and partition; a partition that is a text of digits, as JSON has it, will do."""
        position = cls()
        position._offsets = {topic: {int(partition): offset for partition, offset in within.items()} for topic, within in offsets.items()}
        return position

    @property
    def offsets(self) -> Mapping[str, Mapping[int, int]]:
        """The offsets by topic and partition."""
        return MappingProxyType(self._offsets)

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are spoken of."""
        return frozenset(self._offsets)

    def partitions(self, topic: str) -> Mapping[int, int]:
        """Return the offsets of a topic by partition."""
        return MappingProxyType(self._offsets.get(topic, {}))

    def with_component(self, topic: str, partition: int, offset: int) -> Position:
        """Return the position that is at this offset of a partition too, unless it is ahead of that already."""
        return self.merge(Position.of({topic: {partition: offset}}))

    def merge(self, other: Position) -> Position:
        """Return the position that has come as far as both, the higher offset of each partition."""
        merged = {topic: dict(within) for topic, within in self._offsets.items()}
        for topic, within in other._offsets.items():
            known = merged.setdefault(topic, {})
            for partition, offset in within.items():
                known[partition] = max(offset, known.get(partition, offset))
        return Position.of(merged)

    def __bool__(self) -> bool:
        return bool(self._offsets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Position) and self._offsets == other._offsets

    def __hash__(self) -> int:
        return hash(frozenset((topic, frozenset(within.items())) for topic, within in self._offsets.items()))

    def __repr__(self) -> str:
        return f"Position.of({self._offsets!r})"


@final
class PositionBound:
    """How far a store has to have come to be asked at all: `PositionBound.at(position)`, as an answer before has told; or `unbounded()`."""

    __slots__ = ("position",)

    def __init__(self, position: Position) -> None:
        self.position: Position = position

    @classmethod
    def at(cls, position: Position) -> Self:
        """Return the bound that a store has to have come as far as `position`."""
        return cls(position)

    @classmethod
    def unbounded(cls) -> Self:
        """Return the bound that any store meets."""
        return cls(Position.empty())

    @property
    def is_unbounded(self) -> bool:
        """Whether any store meets the bound."""
        return not self.position

    def admits(self, position: Position, partition: int) -> bool:
        """Return whether a store's partition that is at `position` meets the bound, as far as that speaks of the partition."""
        for topic in self.position.topics:
            bound = self.position.partitions(topic).get(partition)
            if bound is not None and position.partitions(topic).get(partition, -1) < bound:
                return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PositionBound) and self.position == other.position

    def __hash__(self) -> int:
        return hash(self.position)

    def __repr__(self) -> str:
        return "PositionBound.unbounded()" if self.is_unbounded else f"PositionBound.at({self.position!r})"
