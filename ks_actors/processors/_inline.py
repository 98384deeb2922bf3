"""What most operators have in common."""

from __future__ import annotations

from typing import ClassVar


class Inline:
    """An operator that does its work while the record waits, and does not care where the record came from."""

    record_context: ClassVar[bool] = False
    asynchronous: ClassVar[None] = None
