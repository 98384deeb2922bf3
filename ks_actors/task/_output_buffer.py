"""The output of a task that the collector has not taken yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ks_actors.log import Outgoing
from ks_actors.records import Batch, EncodedBatch, TopicPartition

if TYPE_CHECKING:
    from ks_actors.records import Headers
    from ks_actors.task.figures import SinksFigures

Choose: TypeAlias = Callable[[int], Iterable[int]]

Part: TypeAlias = "tuple[list[bytes | None], list[bytes | None], list[int], list[Headers] | None]"

UNKNOWN_PARTITION = -1
"""The partition of records for a topic of unknown size.

The collector finds the size out, and partitions the records.
"""
_UNPLACED = -2


class Unplaced(Outgoing, frozen=True):
    """Records of a topic of unknown size.

    Each comes with the function that chooses its partitions once the size is known.
    """

    choose: Sequence[Choose] = ()

    def placed(self, count: int) -> list[Outgoing]:
        """Return the records by partition, for a topic of `count` partitions.

        Raises the errors of the choosing functions.
        """
        batch = self.batch
        found: dict[int, list[int]] = {}
        for index, choose in enumerate(self.choose):
            for number in choose(count):
                found.setdefault(number, []).append(index)
        headers = batch.headers
        return [
            Outgoing(
                TopicPartition(self.partition.topic, number),
                Batch(
                    [batch.keys[index] for index in picked],
                    [batch.values[index] for index in picked],
                    [batch.timestamps[index] for index in picked],
                    None if headers is None else [headers[index] for index in picked],
                ),
            )
            for number, picked in found.items()
        ]


class Column:
    """Records on their way to one partition: batches, and later records as four lists.

    A column with records is in `filled`.
    """

    __slots__ = ("_batches", "_filled", "headers", "keys", "partition", "timestamps", "values")

    def __init__(self, partition: TopicPartition, filled: list[Column]) -> None:
        self.partition: TopicPartition = partition
        self._filled = filled
        self._batches: list[Batch] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.headers: list[Headers] = []

    def append(
        self, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        """Add one record."""
        if not (self.keys or self._batches):
            self._filled.append(self)
        self.keys.append(key)
        self.values.append(value)
        self.timestamps.append(timestamp)
        self.headers.append(headers)

    def extend(
        self,
        keys: list[bytes | None],
        values: list[bytes | None],
        timestamps: list[int],
        headers: list[Headers] | None,
    ) -> None:
        """Add many records, one at least."""
        if not (self.keys or self._batches):
            self._filled.append(self)
        self.keys += keys
        self.values += values
        self.timestamps += timestamps
        self.headers += [()] * len(keys) if headers is None else headers

    def put(self, batch: EncodedBatch) -> None:
        """Add many encoded records, one at least."""
        batches = self._batches
        if self.keys:
            batches.append(self._cut())
        elif not batches:
            self._filled.append(self)
        elif isinstance(last := batches[-1], EncodedBatch):
            last.append(batch)
            return
        batches.append(batch)

    def _cut(self) -> Batch:
        # None means no headers at all, which the log writes faster than a list of empty headers.
        headers = self.headers[:] if any(self.headers) else None
        # Copies, so that the lists keep their capacity, and the writers that hold them stay valid.
        batch = Batch(self.keys[:], self.values[:], self.timestamps[:], headers)
        self.keys.clear()
        self.values.clear()
        self.timestamps.clear()
        self.headers.clear()
        return batch

    def take(self) -> list[Outgoing]:
        """Return and clear the buffered records."""
        batches, self._batches = self._batches, []
        if self.keys:
            batches.append(self._cut())
        return [Outgoing(self.partition, batch) for batch in batches]


class UnplacedColumn(Column):
    """Records of a topic of unknown size, with user functions that choose the partitions."""

    __slots__ = ("_choose",)

    def __init__(self, topic: str, filled: list[Column]) -> None:
        super().__init__(TopicPartition(topic, UNKNOWN_PARTITION), filled)
        self._choose: list[Choose] = []

    def add(
        self,
        choose: Choose,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
    ) -> None:
        """Add one record."""
        self.append(key, value, timestamp, headers)
        self._choose.append(choose)

    def take(self) -> list[Outgoing]:
        """Return and clear the buffered records."""
        choose, self._choose = self._choose, []
        return [Unplaced(taken.partition, taken.batch, choose) for taken in super().take()]


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
            batch.headers = [*(() for _ in self.numbers), headers]
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
        return scattered(numbers, batch.keys, batch.values, batch.timestamps, batch.headers)


class OutputBuffer:
    """The outgoing records of one task.

    It has a column per partition that was ever written to, in the order of the first writes.
    """

    def __init__(self) -> None:
        self._columns: dict[TopicPartition, Column] = {}
        self._filled: list[Column] = []
        self._mixed: dict[str, MixedRecords] = {}
        self.sinks: dict[str, str] = {}
        """The sink of each topic; the first sink, if there are several."""

    def column(self, topic: str, partition: int) -> Column:
        """Return the column of a partition; it stays valid."""
        # A plain tuple finds an equal named tuple.
        found = self._columns.get((topic, partition))  # type: ignore[call-overload]
        if found is None:
            where = TopicPartition(topic, partition)
            found = self._columns[where] = Column(where, self._filled)
        return found  # type: ignore[no-any-return]  # as above

    def mixed(self, topic: str) -> MixedRecords:
        """Return the records of a topic that have no columns yet; it stays valid."""
        return self._mixed.setdefault(topic, MixedRecords(topic))

    @property
    def mixed_topics(self) -> list[MixedRecords]:
        """The topics with records that have no columns yet."""
        return [mixed for mixed in self._mixed.values() if mixed.numbers]

    def settle(self, topic: str) -> None:
        """Move the records of a topic that have no columns yet to the columns of their partitions.

        Records that are added to columns come after them.
        """
        mixed = self._mixed.get(topic)
        if mixed is not None and mixed.numbers:
            for number, part in mixed.take_parts():
                self.column(topic, number).extend(*part)

    def unplaced(self, topic: str) -> UnplacedColumn:
        """Return the column for records of a topic of unknown size."""
        found = self._columns.get(TopicPartition(topic, _UNPLACED))
        if not isinstance(found, UnplacedColumn):
            found = self._columns[TopicPartition(topic, _UNPLACED)] = UnplacedColumn(
                topic, self._filled
            )
        return found

    def take(self) -> list[Outgoing]:
        """Return and clear all records."""
        for topic in self._mixed:
            self.settle(topic)
        return self.take_columns()

    def take_columns(self) -> list[Outgoing]:
        """Return and clear the records in columns; `mixed_topics` come after them."""
        if not self._filled:
            return []
        taken = [outgoing for column in self._filled for outgoing in column.take()]
        self._filled.clear()
        return taken

    @property
    def empty(self) -> bool:
        """Whether there are no records."""
        return not (self._filled or self.mixed_topics)

    def drop(self) -> None:
        """Discard all records."""
        self.take()

    def partitions(self) -> Iterable[TopicPartition]:
        """Return the partitions that were ever written to."""
        return self._columns.keys()


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
    keys: list[bytes | None],
    values: list[bytes | None],
    timestamps: list[int],
    headers: list[Headers] | None,
) -> list[tuple[int, Part]]:
    """Return columns split by number, in the order of the numbers."""
    parts: dict[int, Part] = {}
    for place, number in enumerate(numbers):
        part = parts.get(number)
        if part is None:
            part = parts[number] = ([], [], [], None if headers is None else [])
        part[0].append(keys[place])
        part[1].append(values[place])
        part[2].append(timestamps[place])
        if headers is not None and part[3] is not None:
            part[3].append(headers[place])
    return sorted(parts.items())
