"""The eviction of expired windows from memory."""

from __future__ import annotations

from typing import Any

from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel


def expire(tracks: dict[Any, dict[int, Any]], indexes: list[Any], limit: int) -> int:
    """Evict these keys' windows that start at `limit` or before; return how many.

    Keys without windows are removed too.
    """
    if HAS_KERNEL:
        return _kernel.expire_windows(tracks, indexes, limit)
    return take_out(tracks, indexes, limit)


def take_out(tracks: dict[Any, dict[int, Any]], indexes: list[Any], limit: int) -> int:
    """Do the same as `expire` in Python, for slots of any size."""
    removed = 0
    for index in indexes:
        track = tracks.get(index)
        if track is None:
            continue
        old = [start for start in track if start <= limit]
        for start in old:
            del track[start]
        removed += len(old)
        if not track:
            del tracks[index]
    return removed
