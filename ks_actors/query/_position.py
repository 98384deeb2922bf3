"""Positions of stores in their inputs."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Self, final

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
class Position:
    """The input position of a query's data: offsets by topic and partition, inclusive.

    A position is immutable: `with_component` and `merge` return a new position.
    `Position.of(position.offsets)` equals `position`, so a position can be sent as JSON.
    """

    __slots__ = ("_offsets",)

    def __init__(self) -> None:
        self._offsets: dict[str, dict[int, int]] = {}

    @classmethod
    def empty(cls) -> Self:
        """Return the position before any input."""
        return cls()

    @classmethod
    def of(cls, offsets: Mapping[str, Mapping[int, int]]) -> Self:
        """Return the position with these offsets, by topic and partition.

        A partition may be a string of digits, as in JSON.
        """
        position = cls()
        position._offsets = {
            topic: {int(partition): offset for partition, offset in within.items()}
            for topic, within in offsets.items()
        }
        return position

    @property
    def offsets(self) -> Mapping[str, Mapping[int, int]]:
        """The offsets by topic and partition."""
        return MappingProxyType(self._offsets)

    @property
    def topics(self) -> frozenset[str]:
        """The topics with offsets."""
        return frozenset(self._offsets)

    def partitions(self, topic: str) -> Mapping[int, int]:
        """Return the offsets of a topic by partition."""
        return MappingProxyType(self._offsets.get(topic, {}))

    def with_component(self, topic: str, partition: int, offset: int) -> Position:
        """Return the position that has also reached this offset of a partition."""
        return self.merge(Position.of({topic: {partition: offset}}))

    def merge(self, other: Position) -> Position:
        """Return the position with the higher offset of each partition."""
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
        return hash(
            frozenset((topic, frozenset(within.items())) for topic, within in self._offsets.items())
        )

    def __repr__(self) -> str:
        return f"Position.of({self._offsets!r})"


@final
class PositionBound:
    """The position that a store must have reached to answer.

    Use `PositionBound.at(position)` with the position of an earlier answer, or `unbounded()`.
    """

    __slots__ = ("position",)

    def __init__(self, position: Position) -> None:
        self.position: Position = position

    @classmethod
    def at(cls, position: Position) -> Self:
        """Return the bound of stores that have reached `position`."""
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
        """Return whether a store's partition at `position` meets the bound for that partition."""
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
        return (
            "PositionBound.unbounded()"
            if self.is_unbounded
            else f"PositionBound.at({self.position!r})"
        )
