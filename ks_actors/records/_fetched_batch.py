"""Records as they were fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, final

from ks_actors.kernel import kernel as _kernel
from ks_actors.records._lazy_batch import LazyBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors.records._lazy_batch import Columns

TEXT_KEYS, TEXT_VALUES = 1, 2


class FetchedRun(NamedTuple):
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
        """Return keys, values and timestamps; `texts` are as in the kernel's `read_plain`."""
        return _kernel.read_plain(
            self.data, self.at, self.number, self.time, self.append_time, texts
        )

    def slice(self, start: int, stop: int) -> FetchedRun:
        """Return records `start` to before `stop`."""
        if start == 0 and stop == self.number:
            return self
        at = _kernel.skip_records(self.data, self.at, start)
        end = self.stop
        if stop < self.number:
            end = _kernel.skip_records(self.data, at, stop - start)
        return self._replace(at=at, stop=end, number=stop - start)


@final
class FetchedBatch(LazyBatch):
    """Records that become objects once they are decoded; `read` makes texts of them at once."""

    __slots__ = ("_count", "_runs")

    def __init__(self, runs: list[FetchedRun], offsets: Sequence[int]) -> None:
        super().__init__(offsets)
        self._runs: list[FetchedRun] = runs
        self._count: int = len(offsets)

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
        """The bytes of the records."""
        return sum(run.stop - run.at for run in self._runs)

    def slice(self, start: int, stop: int) -> FetchedBatch:
        """Return records `start` to before `stop`, by position, as bytes as well."""
        start, stop, _ = slice(start, stop).indices(self._count)
        runs: list[FetchedRun] = []
        before = 0
        for run in self._runs:
            first, end = max(start - before, 0), min(stop - before, run.number)
            if first < end:
                runs.append(run.slice(first, end))
            before += run.number
        return FetchedBatch(runs, self.offsets[start:stop])

    def write(self, start: int, limit: int, header: int) -> tuple[bytearray, int, int, int]:
        """Write records from `start` on as the kernel's `write_records` does."""
        return _kernel.write_records(
            self.keys, self.values, self.timestamps, None, start, limit, header
        )
