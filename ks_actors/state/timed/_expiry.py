"""Windows that have expired, taken out of what is in memory."""

from __future__ import annotations

from typing import Any

from ks_actors.kernel import kernel as _kernel


def expire(tracks: dict[Any, dict[int, Any]], indexes: list[Any], limit: int) -> int:
    """Take out what starts at `limit` or before under these keys, and keys of which nothing is left; return how many windows that were."""
    if _kernel is not None:
        removed: int = _kernel.expire_windows(tracks, indexes, limit)
        return removed
    return take_out(tracks, indexes, limit)


def take_out(tracks: dict[Any, dict[int, Any]], indexes: list[Any], limit: int) -> int:
    """Do the same to slots of any size."""
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
