"""Exchange files between the tasks of a local backfill, and the order in which they merge."""

from __future__ import annotations

import heapq
import struct
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, final

from ks_actors.log.embedded import decode_batch, encode_batch
from ks_actors.records import Batch, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from pathlib import Path

    from ks_actors.log import Outgoing
    from ks_actors.records import Headers

_LENGTH = struct.Struct(">Q")
_AT_ONCE = 1_000
# Never compare keys and values: the order must not depend on them.
_IN_ORDER = itemgetter(0, 1, 2)


class Row(NamedTuple):
    """A record of a partition.

    `high` is the latest timestamp that its task had written to the partition so far; `number`
    counts the task's records there.
    """

    high: int
    source: int
    number: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


def numbered(batches: Iterable[Batch], source: int) -> Iterator[Row]:
    """Yield the records that one task wrote to one partition, in order."""
    high, number = -1, 0
    for batch in batches:
        headers: Sequence[Any] = [()] * len(batch) if batch.headers is None else batch.headers
        for key, value, timestamp, header in zip(
            batch.keys, batch.values, batch.timestamps, headers, strict=True
        ):
            # Use the maximum, not the timestamp itself: a merge needs sorted sources, and each
            # task's records keep their order.
            high = max(high, timestamp)
            yield Row(high, source, number, key, value, timestamp, header)
            number += 1


def together(sources: Iterable[Iterator[Row]]) -> Iterator[Row]:
    """Merge the records of several tasks into the order of one partition.

    Each task's records keep their order; records of different tasks interleave by `high`. A stream
    could produce the same order.
    """
    return heapq.merge(*sources, key=_IN_ORDER)


def batched(rows: Iterable[Row], first: int = 0) -> Generator[Batch, None, None]:
    """Yield rows as batches, with offsets from `first` on."""
    part: list[Row] = []
    for row in rows:
        part.append(row)
        if len(part) == _AT_ONCE:
            yield _batch(part, first)
            first, part = first + len(part), []
    if part:
        yield _batch(part, first)


def _batch(rows: list[Row], first: int) -> Batch:
    _, _, _, keys, values, timestamps, headers = map(list, zip(*rows, strict=True))
    return Batch(
        keys, values, timestamps, headers if any(headers) else None, range(first, first + len(rows))
    )


@final
class RowFiles:
    """The output of a local backfill's tasks, one file per partition and task. All calls block."""

    def __init__(self, directory: Path) -> None:
        self._directory: Path = directory
        self._files: dict[TopicPartition, dict[int, Path]] = {}

    def writer(self, source: int, directory: str) -> RowWriter:
        """Return a writer for a task; pass it to `add` when the task is done."""
        return RowWriter(self._directory / directory, source)

    def add(self, writer: RowWriter) -> None:
        """Register the output of a finished task."""
        for where, path in writer.close().items():
            self._files.setdefault(where, {})[writer.source] = path

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions with output."""
        return sorted(self._files)

    def read(self, where: TopicPartition) -> Generator[Batch, None, None]:
        """Yield the records of a partition in order."""
        files = self._files.get(where, {})
        return batched(
            together(numbered(_read(path), source) for source, path in sorted(files.items()))
        )


@final
class RowWriter:
    """Writer for the output of one task, by partition."""

    def __init__(self, directory: Path, source: int) -> None:
        self.source: int = source
        self.records: int = 0
        self._directory: Path = directory
        self._paths: dict[TopicPartition, Path] = {}
        self._open: dict[TopicPartition, Any] = {}

    def write(self, written: Iterable[Outgoing]) -> None:
        """Append records."""
        for outgoing in written:
            where = TopicPartition(*outgoing.partition)
            file = self._open.get(where)
            if file is None:
                self._directory.mkdir(parents=True, exist_ok=True)
                path = self._paths[where] = self._directory / f"{len(self._paths)}.rows"
                file = self._open[where] = path.open("wb")
            batch = outgoing.batch
            data = encode_batch(
                Batch(batch.keys, batch.values, batch.timestamps, batch.headers, range(len(batch)))
            )
            file.write(_LENGTH.pack(len(data)))
            file.write(data)
            self.records += len(batch)

    def close(self) -> dict[TopicPartition, Path]:
        """Close the files and return their paths."""
        for file in self._open.values():
            file.close()
        self._open.clear()
        return self._paths


def _read(path: Path) -> Generator[Batch, None, None]:
    with path.open("rb") as file:
        while head := file.read(_LENGTH.size):
            yield decode_batch(file.read(_LENGTH.unpack(head)[0]), 0)
