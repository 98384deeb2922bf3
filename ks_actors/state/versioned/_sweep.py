"""The search for expired versions in the engine.

It covers the keys that were not used since the store was opened.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, final

from ks_actors.state.core import TIME_BYTES, after, unpack_time
from ks_actors.state.versioned._codec import is_tombstone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.state.core import Engine

ROWS: Final = 400
"""Rows per step, about half a millisecond."""


@final
class Sweep:
    """Two passes over a store's rows after its opening.

    The first pass is immediate. The second comes when all versions from the opening have expired or
    are the latest.
    """

    def __init__(self, engine: Engine | None) -> None:
        self._engine: Engine | None = engine
        self._due: list[int] = []

    def due_at(self, *limits: int) -> None:
        """Schedule a pass for the time when versions that ended at each of these limits expire."""
        self._due = sorted(limits)

    def steps(self, prefix: bytes, committed: int, limit: int) -> Iterator[list[bytes]]:
        """Return the versions (without `prefix`) that ended at `limit` or before, a step at a time.

        Return nothing when no pass is due.
        """
        engine = self._engine
        if engine is None or committed < 0 or not self._due or limit < self._due[0]:
            return
        self._due = [each for each in self._due if each > limit]
        cursor, cut = prefix, len(prefix)
        # The last row of a step carries over: its successor may be in the next step.
        key, time, tombstone = b"", 0, False
        while True:
            rows = list(islice(engine.scan(cursor, after(prefix)), ROWS))
            ended: list[bytes] = []
            for encoded, data in rows:
                name, begin = (
                    encoded[cut:-TIME_BYTES],
                    unpack_time(encoded, len(encoded) - TIME_BYTES)[0],
                )
                if (name == key and begin <= limit) or (
                    name != key and tombstone and time <= limit
                ):
                    ended.append(key + time.to_bytes(TIME_BYTES, "big"))
                key, time, tombstone = name, begin, is_tombstone(data)
            if len(rows) < ROWS:
                if tombstone and time <= limit:
                    ended.append(key + time.to_bytes(TIME_BYTES, "big"))
                yield ended
                return
            cursor = rows[-1][0] + b"\0"
            yield ended
