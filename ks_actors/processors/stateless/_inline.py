"""The base of most operators."""

from __future__ import annotations


class Inline:
    """Base of operators that work synchronously and ignore the origin of records."""

    asynchronous: None = None

    @property
    def record_context(self) -> bool:
        """Whether the node's code may look at the record's context."""
        return False
