"""Task ids, as in Kafka Streams."""

from __future__ import annotations

from typing import Self

import msgspec


class TaskId(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """The id of a task: its subtopology, and the `partition` of each source topic that it reads.

    It is written `0_1`, and ordered by subtopology, then partition.
    """

    subtopology: int
    partition: int

    @classmethod
    def parse(cls, text: str, /) -> Self:
        """Parse `<subtopology>_<partition>`; raise ValueError for other texts."""
        subtopology, separator, partition = text.partition("_")
        if not (separator and subtopology.isdecimal() and partition.isdecimal()):
            raise ValueError(
                f"{text!r} is not a task id; expected <subtopology>_<partition>, such as 0_1"
            )
        return cls(int(subtopology), int(partition))

    def log_fields(self) -> dict[str, object]:
        """Return the field of log records that name this task."""
        return {"task": str(self)}

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"
