"""Versions that ended long ago, looked for in the engine: those of keys that nobody has asked for since the store was opened."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, final

from ks_actors.state.core import TIME_BYTES, after, unpack_time
from ks_actors.state.versioned._codec import is_tombstone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.state.disk import Engine

ROWS: Final = 400
"""Rows that are looked at in one step, about half a millisecond."""


@final
class Sweep:
    """Goes through the rows of a store twice after it was opened: at once, and when all that it had then has ended or is the latest."""

    def __init__(self, engine: Engine | None) -> None:
        self._engine: Engine | None = engine
        self._due: list[int] = []

    def due_at(self, *limits: int) -> None:
        """Go through the rows when what ended at these times is to be removed."""
        self._due = sorted(limits)

    def steps(self, prefix: bytes, committed: int, limit: int) -> Iterator[list[bytes]]:
        """Return the versions (without `prefix`) that ended at `limit` or before, a step at a time; nothing when it is not time for that."""
        engine = self._engine
        if engine is None or committed < 0 or not self._due or limit < self._due[0]:
            return
        self._due = [each for each in self._due if each > limit]
        cursor, cut = prefix, len(prefix)
        key, time, tombstone = b"", 0, False
        while True:
            rows = list(islice(engine.scan(cursor, after(prefix)), ROWS))
            ended: list[bytes] = []
            for encoded, data in rows:
                name, begin = encoded[cut:-TIME_BYTES], unpack_time(encoded, len(encoded) - TIME_BYTES)[0]
                if (name == key and begin <= limit) or (name != key and tombstone and time <= limit):
                    ended.append(key + time.to_bytes(TIME_BYTES, "big"))
                key, time, tombstone = name, begin, is_tombstone(data)
            if len(rows) < ROWS:
                if tombstone and time <= limit:
                    ended.append(key + time.to_bytes(TIME_BYTES, "big"))
                yield ended
                return
            cursor = rows[-1][0] + b"\0"
            yield ended
