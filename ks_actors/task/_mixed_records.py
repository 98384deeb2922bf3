"""The output of tasks to several partitions of a topic."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Any

from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel
from ks_actors.log import Outgoing
from ks_actors.records import Batch, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ks_actors.records import Headers
    from ks_actors.task._output_buffer import OutputBuffer
    from ks_actors.task.figures import SinksFigures

Part = tuple[list[bytes | None], list[bytes | None], list[int], "list[Headers] | None"]


class MixedRecords:
    """Records for one topic, as columns with the partition of each record.

    Records of a partition keep their order. With many partitions and a few records for each, a list
    per partition would cost more than the records.
    """

    __slots__ = ("batch", "numbers", "topic")

    def __init__(self, topic: str) -> None:
        self.topic: str = topic
        self.numbers: list[int] = []
        self.batch: Batch = Batch([], [], [])

    def append(
        self,
        number: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
    ) -> None:
        """Add a record for a partition."""
        batch = self.batch
        if batch.headers is not None:
            batch.headers.append(headers)
        elif headers:
            batch.headers = [()] * len(self.numbers)
            batch.headers.append(headers)
        self.numbers.append(number)
        batch.keys.append(key)
        batch.values.append(value)
        batch.timestamps.append(timestamp)

    def extend(self, numbers: list[int], records: Batch) -> None:
        """Add records, and their partitions."""
        batch = self.batch
        if records.headers is not None or batch.headers is not None:
            if batch.headers is None:
                batch.headers = [()] * len(self.numbers)
            batch.headers += records.headers or [()] * len(numbers)
        self.numbers += numbers
        batch.keys += records.keys
        batch.values += records.values
        batch.timestamps += records.timestamps

    def take(self) -> tuple[list[int], Batch]:
        """Return and clear the records."""
        taken = self.numbers, self.batch
        self.numbers, self.batch = [], Batch([], [], [])
        return taken

    def take_parts(self) -> Iterable[tuple[int, Part]]:
        """Return the columns of each partition, and clear the records."""
        numbers, batch = self.take()
        parts = scattered(
            numbers, max(numbers) + 1, batch.keys, batch.values, batch.timestamps, batch.headers
        )
        return ((number, part) for number, part in enumerate(parts) if part is not None)


class Gathered:
    """The output of several tasks, one after the other."""

    def __init__(self) -> None:
        self._batches: list[Outgoing] = []
        self._mixed: dict[str, MixedRecords] = {}

    def take(self, output: OutputBuffer, figures: SinksFigures, now_ms: int) -> None:
        """Take all records of a task, and note them in its figures."""
        if batches := output.take_columns():
            figures.note(batches, now_ms)
            self._batches += batches
        for mixed in output.mixed_topics:
            whole = Outgoing(TopicPartition(mixed.topic, 0), mixed.batch)
            figures.note((whole,), now_ms)
            found = self._mixed.get(mixed.topic)
            if found is None:
                found = self._mixed[mixed.topic] = MixedRecords(mixed.topic)
            found.extend(*mixed.take())

    def batches(self) -> list[Outgoing]:
        """Return all output: for each partition, in the order in which it was added."""
        for mixed in self._mixed.values():
            self._batches += [
                Outgoing(TopicPartition(mixed.topic, number), Batch(*part))
                for number, part in mixed.take_parts()
            ]
        self._mixed.clear()
        return self._batches


def scattered(
    numbers: list[int],
    count: int,
    keys: list[bytes | None],
    values: list[bytes | None],
    timestamps: list[int],
    headers: list[Headers] | None,
) -> Iterable[Part | None]:
    """Return columns split by number; None for numbers that do not occur."""
    if HAS_KERNEL:
        columns: list[list[Any]] = (
            [keys, values, timestamps] if headers is None else [keys, values, timestamps, headers]
        )
        for part in zip(*_kernel.scatter(numbers, count, columns), strict=True):
            yield None if part[0] is None else part if headers is not None else (*part, None)
        return
    for place in range(count):
        picked = [number == place for number in numbers]
        yield (
            None
            if True not in picked
            else (
                list(compress(keys, picked)),
                list(compress(values, picked)),
                list(compress(timestamps, picked)),
                None if headers is None else list(compress(headers, picked)),
            )
        )
