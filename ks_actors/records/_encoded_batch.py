"""Records that are bytes, as in a record batch."""

from __future__ import annotations

from sys import maxsize
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from ks_actors.kernel import kernel as _kernel
from ks_actors.records._lazy_batch import LazyBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors.records._batch import Batch
    from ks_actors.records._lazy_batch import Columns

TEXT_KEYS: Final = 1
TEXT_VALUES: Final = 2


class Run(NamedTuple):
    """A number of well-formed records without headers, from `at` to `stop` in some bytes.

    `time` is the base of their timestamps, or with `append_time` the timestamp of all.
    """

    data: memoryview | bytes
    at: int
    stop: int
    number: int
    time: int
    append_time: bool

    def read(self, texts: int) -> Columns:
        """Return keys, values and timestamps; `texts` is a sum of TEXT_KEYS and TEXT_VALUES."""
        data, at, _, number, time, append_time = self
        return _kernel.read_records(data, at, number, 0, time, append_time, False, texts)[1:4]

    def slice(self, start: int, stop: int) -> Run:
        """Return records `start` to before `stop`."""
        if start == 0 and stop == self.number:
            return self
        at = _kernel.skip_records(self.data, self.at, start)
        end = self.stop
        if stop < self.number:
            end = _kernel.skip_records(self.data, at, stop - start)
        return self._replace(at=at, stop=end, number=stop - start)


class FetchedBatch(LazyBatch):
    """Records as they were fetched."""

    __slots__ = ("_count", "_runs", "_size")

    def __init__(self, runs: list[Run], offsets: Sequence[int] = ()) -> None:
        super().__init__(offsets)
        self._runs: list[Run] = runs
        self._count: int = sum(run.number for run in runs)
        self._size: int = sum(run.stop - run.at for run in runs)

    def read(self, texts: int) -> Columns:
        """Return new columns; `texts` is a sum of TEXT_KEYS and TEXT_VALUES.

        Raises UnicodeDecodeError.
        """
        if len(self._runs) == 1:
            return self._runs[0].read(texts)
        keys, values, timestamps = list[Any](), list[Any](), list[int]()
        for run in self._runs:
            more = run.read(texts)
            keys += more[0]
            values += more[1]
            timestamps += more[2]
        return keys, values, timestamps

    def _columns(self) -> Columns:
        return self.read(0)

    def __len__(self) -> int:
        return self._count

    @property
    def own_bytes(self) -> int:
        """The size of the records in bytes."""
        return self._size

    def slice(self, start: int, stop: int) -> FetchedBatch:
        """Return records `start` to before `stop`, by position, as bytes as well."""
        start, stop, _ = slice(start, stop).indices(self._count)
        runs: list[Run] = []
        before = 0
        for run in self._runs:
            first, end = max(start - before, 0), min(stop - before, run.number)
            if first < end:
                runs.append(run.slice(first, end))
            before += run.number
        return FetchedBatch(runs, self.offsets[start:stop])

    def write(self, start: int, limit: int, header: int) -> tuple[bytearray, int, int, int]:
        """Write records from `start` on as the kernel's `write_records` does."""
        return _kernel.join_records(self._runs, start, limit, header)


@final
class EncodedBatch(FetchedBatch):
    """Serialized records, without the header of a record batch.

    `count` is their number, `first` the first record's timestamp, `latest` the highest timestamp.
    """

    __slots__ = ("latest",)

    def __init__(self, data: bytes, count: int, first: int, latest: int) -> None:
        super().__init__([Run(data, 0, len(data), count, first, append_time=False)])
        self.latest: int = latest

    @classmethod
    def of(cls, batch: Batch) -> EncodedBatch | None:
        """Return some records encoded; None if they are not bytes, or have headers."""
        if batch.headers is not None:
            return None
        try:
            written = _kernel.write_records(
                batch.keys, batch.values, batch.timestamps, None, 0, maxsize, 0
            )
        except TypeError:
            return None
        return cls(bytes(written[0]), *written[1:])

    def append(self, other: EncodedBatch) -> None:
        """Append the records of another batch; only before this batch is passed on."""
        self._runs += other._runs
        self._count += other._count
        self._size += other._size
        self.latest = max(self.latest, other.latest)

    def copy(self) -> EncodedBatch:
        """Return a batch of the same records, to append others."""
        copied = EncodedBatch(b"", 0, 0, self.latest)
        copied._runs, copied._count, copied._size = self._runs[:], self._count, self._size
        return copied

    def write(self, start: int, limit: int, header: int) -> tuple[bytearray, int, int, int]:
        """Write records from `start` on as the kernel's `write_records` does."""
        if start == 0 and len(self._runs) == 1 and header + self._size <= limit:
            return self._whole(header)
        return super().write(start, limit, header)

    def _whole(self, header: int) -> tuple[bytearray, int, int, int]:
        """Return the records of the only run as they are."""
        written = bytearray(header)
        written += self._runs[0].data
        return written, self._count, self._runs[0].time, self.latest
