"""Scans of sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors.query._calls import Bounded, Call
from ks_actors.query._scan import Scan
from ks_actors.records import Windowed

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


def session_key_scan(
    key: Any,
    earliest_end: int | datetime,
    latest_start: int | datetime,
    *,
    committed: bool,
    reverse: bool,
    entry: Callable[[Any], Any],
) -> Scan:
    """Return the scan of a key's sessions that overlap with a span of time."""
    return Scan(
        Call("find", key, (earliest_end, latest_start), committed, reverse=reverse),
        lambda row: (Windowed(*row[1]), entry(row[2])),
        reverse=reverse,
    )


def session_scan(
    low: Any,
    high: Any,
    earliest_end: int | datetime,
    latest_start: int | datetime,
    *,
    committed: bool,
    reverse: bool,
    entry: Callable[[Any], Any],
) -> Scan:
    """Return the scan of a key range's sessions that overlap with a span of time."""
    return Scan(
        Bounded(
            "find_range",
            lambda keys: keys.bounds(low, high),
            (earliest_end, latest_start),
            committed,
            reverse=reverse,
        ),
        lambda row: (Windowed(*row[1]), entry(row[2])),
        reverse=reverse,
    )
