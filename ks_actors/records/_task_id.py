"""How Kafka Streams names a task."""

from __future__ import annotations

from typing import Self

import msgspec


class TaskId(msgspec.Struct, frozen=True, order=True):
    """The `partition` of the subtopology that a task works on; written `0_1`, ordered by subtopology, then partition."""

    subtopology: int
    partition: int

    @classmethod
    def parse(cls, text: str, /) -> Self:
        """Return the id that `text` (`<subtopology>_<partition>`) names; raise ValueError when it names none."""
        subtopology, separator, partition = text.partition("_")
        if not (separator and subtopology.isdecimal() and partition.isdecimal()):
            raise ValueError(f"{text!r} is no task id; expected <subtopology>_<partition>, such as 0_1")
        return cls(int(subtopology), int(partition))

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"
