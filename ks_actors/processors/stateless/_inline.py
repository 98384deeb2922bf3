"""What most operators have in common."""

from __future__ import annotations


class Inline:
    """An operator that does its work while the record waits, and does not care where the record came from."""

    record_context: bool = False
    asynchronous: None = None
