"""The base of most operators."""

from __future__ import annotations


class Inline:
    """Base of operators that work synchronously and ignore the origin of records."""

    record_context: bool = False
    asynchronous: None = None
