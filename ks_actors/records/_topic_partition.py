"""A partition of a topic."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of a topic; written `topic-3`."""

    topic: str
    partition: int

    def log_fields(self) -> dict[str, object]:
        """Return the fields of log records that name this partition."""
        return {"topic": self.topic, "partition": self.partition}

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
