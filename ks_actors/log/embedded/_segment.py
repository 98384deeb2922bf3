"""The index entry of one stored batch, or of one marker."""

from __future__ import annotations

from itertools import chain
from operator import countOf
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors.records import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

DATA: Final = 0
TRANSACTIONAL: Final = 1
COMMIT: Final = 2
ABORT: Final = 3

NO_PRODUCER: Final = -1


@final
class Segment:
    """Offsets `base` to before `end` of a partition: `count` records, or a marker (COMMIT, ABORT).

    `batch` is set while storage keeps it in memory. `newest` is the highest timestamp if known.
    `horizon` is the time (ms) from which compaction may drop the segment's tombstones; None before
    the first compaction. Committed readers skip `aborted` segments.
    """

    __slots__ = (
        "aborted",
        "base",
        "batch",
        "count",
        "end",
        "horizon",
        "kind",
        "newest",
        "pid",
        "size",
    )

    def __init__(
        self,
        base: int,
        end: int,
        *,
        kind: int = DATA,
        pid: int = NO_PRODUCER,
        count: int = 0,
        size: int = 0,
    ) -> None:
        self.base: int = base
        self.end: int = end
        self.kind: int = kind
        self.pid: int = pid
        self.count: int = count
        self.size: int = size
        self.aborted: bool = False
        self.newest: int | None = None
        self.horizon: int | None = None
        self.batch: Batch | None = None

    @property
    def is_marker(self) -> bool:
        """Whether this is the end of a transaction and has no records."""
        return self.kind >= COMMIT


def payload(batch: Batch) -> int:
    """Return the number of bytes in keys, values and headers.

    Raises TypeError for values that are not bytes, ValueError for columns of different lengths.
    """
    keys, values = batch.keys, batch.values
    if not len(keys) == len(values) == len(batch.timestamps):
        raise ValueError(
            f"the columns of a batch have different lengths: {len(keys)} keys, {len(values)} "
            f"values, {len(batch.timestamps)} timestamps"
        )
    size = _bytes_of(keys, "keys") + _bytes_of(values, "values")
    if batch.headers is None:
        return size
    return size + sum(
        len(name) + len(value or b"") for name, value in chain.from_iterable(batch.headers)
    )


def sizes_of(batch: Batch) -> list[int]:
    """Return the size of each record in bytes."""
    return [payload(batch.slice(index, index + 1)) for index in range(len(batch))]


def joined(parts: Sequence[Batch]) -> Batch:
    """Return one batch of the records of `parts`; a single part is returned without a copy."""
    if len(parts) == 1:
        return parts[0]
    keys: list[Any] = []
    values: list[Any] = []
    timestamps: list[int] = []
    for part in parts:
        keys += part.keys
        values += part.values
        timestamps += part.timestamps
    headers = None
    if any(part.headers is not None for part in parts):
        headers = list(
            chain.from_iterable(
                part.headers if part.headers is not None else ((),) * len(part) for part in parts
            )
        )
    return Batch(keys, values, timestamps, headers, _joined_offsets(parts))


def _joined_offsets(parts: Sequence[Batch]) -> Sequence[int]:
    if not parts:
        return ()
    first, last = parts[0].offsets[0], parts[-1].offsets[-1]
    if last - first + 1 == sum(map(len, parts)):
        return range(first, last + 1)
    return list(chain.from_iterable(part.offsets for part in parts))


def _bytes_of(column: list[Any], what: str) -> int:
    if countOf(map(type, column), bytes) == len(column):
        return len(b"".join(column))  # Twice as fast as adding up the lengths.
    kinds = set(map(type, column))
    if kinds <= {bytes, NoneType}:
        return sum(map(len, filter(None, column)))
    names = ", ".join(sorted(kind.__name__ for kind in kinds - {bytes, NoneType}))
    raise TypeError(
        f"{what} of records in a log must be bytes or None, not {names}: serialize them first"
    )
