"""The check of times in reads of a store."""

from __future__ import annotations

from datetime import datetime
from typing import Any


def check_ms(store: str, *times: Any) -> None:
    """Raise TypeError for a time that is no int; None is no bound."""
    for time in times:
        if type(time) is int or time is None or hasattr(time, "__index__"):
            continue
        ways = "int(moment.timestamp() * 1000) of a datetime with a time zone"
        if isinstance(time, datetime) and time.tzinfo is not None:
            ways = str(int(time.timestamp() * 1000))
        raise TypeError(
            f"store {store} is asked for the time {time!r}, of type {type(time).__name__}: give an "
            f"int, which counts ms since 1970: {ways}"
        )
