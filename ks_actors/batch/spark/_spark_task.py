"""The Spark task of a backfill: one task of the topology with Arrow rows as input and output."""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
import pyarrow as pa

from ks_actors._errors import BatchError
from ks_actors.batch._reading import LogAddress, LogReader
from ks_actors.batch._shipping import unpacked
from ks_actors.batch._task_errors import carried
from ks_actors.batch.backfill import Recipe, Target, TaskDone, TaskRun, WorkLoop, first_source
from ks_actors.records import Batch, TopicPartition
from ks_actors.snapshots import Place

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from ks_actors.batch.backfill import Stage
    from ks_actors.log import Outgoing

FIRST: Final = -(1 << 63)
"""The `high` of the marker row that every task gets, so that tasks without records run, too."""

_decode = msgspec.msgpack.Decoder(tuple[tuple[str, bytes | None], ...]).decode
_encode = msgspec.msgpack.Encoder().encode
# Created at import: msgspec resolves the type lazily, and crashes if two threads do so at once.
_decode_done = msgspec.msgpack.Decoder(TaskDone).decode

ROWS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("high", pa.int64()),
        ("source", pa.int32()),
        ("number", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("headers", pa.binary()),
    ]
)
"""Rows between stages; a row without a topic carries a task's final result in its value."""

DDL: Final = (
    "topic string, partition int, high bigint, source int, number bigint, key binary, value "
    "binary, timestamp bigint, headers binary"
)


def batch_of(rows: pa.RecordBatch, first: int) -> Batch:
    """Return rows of one partition, in order, as a batch with offsets from `first` on."""
    keys, values, timestamps, headers = (
        rows.column(name).to_pylist() for name in ("key", "value", "timestamp", "headers")
    )
    decoded = (
        None if not any(headers) else [() if data is None else _decode(data) for data in headers]
    )
    return Batch(keys, values, timestamps, decoded, range(first, first + len(keys)))


def done_of(data: bytes) -> TaskDone:
    """Decode the final result of a task, as plain data because it came over the network.

    Raises BatchError for anything else.
    """
    try:
        return _decode_done(data)
    except msgspec.MsgspecError as error:
        raise BatchError(
            f"a Spark task returned an invalid result: {error}; do its workers have another "
            "version of ks_actors?"
        ) from error


class StageTask(msgspec.Struct, frozen=True):
    """One stage of a backfill, as a function over Arrow batches.

    Its input is the records of repartition topics for one task, in order.
    """

    recipe: bytes
    stage: int
    address: LogAddress
    snapshot: str | None
    name: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process the input, and yield the output; runs in a Spark task."""
        with carried():
            from pyspark import TaskContext  # noqa: PLC0415 - only there

            context = TaskContext.get()
            assert context is not None
            yield from self._run(batches, context.partitionId(), context.taskAttemptId())

    def _run(
        self, batches: Iterator[pa.RecordBatch], number: int, attempt: int
    ) -> Iterator[pa.RecordBatch]:
        recipe: Recipe = unpacked(self.recipe)
        stage: Stage = recipe.plan.stages[self.stage]
        work = stage.tasks[number]
        came = _Came(batches, number, work.exchanged)
        written = _Written(first_source(recipe.plan, stage) + number)
        # A task presumed dead may still be writing: each attempt writes to different files.
        target = (
            None
            if self.snapshot is None
            else Target(Place.of(self.snapshot).at(*self.name), attempt)
        )
        directory = Path(tempfile.mkdtemp(prefix="ks-actors-task-"))
        try:
            with LogReader(self.address) as reader, WorkLoop() as loop:
                loop.enter(recipe.topology, recipe.services)
                exchanged = {where: came.of(where) for where in work.exchanged}
                run = TaskRun(
                    recipe, work, directory, read=reader.read, exchanged=exchanged, snapshot=target
                )
                with closing(run.run(loop)) as all_written:
                    for some in all_written:
                        yield from map(written.rows, some)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        yield written.end(_encode(run.done))


@final
class _Came:
    """Input rows of one task, split by topic on demand."""

    def __init__(
        self, batches: Iterator[pa.RecordBatch], number: int, wanted: Sequence[TopicPartition]
    ) -> None:
        self._batches = batches
        self._number = number
        self._ready: dict[TopicPartition, deque[Batch]] = {where: deque() for where in wanted}
        self._next: dict[TopicPartition, int] = dict.fromkeys(wanted, 0)

    def of(self, where: TopicPartition) -> Generator[Batch, None, None]:
        """Yield the records of a partition."""
        ready = self._ready[where]
        while ready or self._pull():
            while ready:
                yield ready.popleft()

    def _pull(self) -> bool:
        rows = next(self._batches, None)
        if rows is None:
            return False
        topics = rows.column("topic").to_pylist()
        if set(rows.column("partition").to_pylist()) - {self._number}:
            raise AssertionError(f"rows of other partitions arrived at task {self._number}")
        for topic in dict.fromkeys(topic for topic in topics if topic is not None):
            where = TopicPartition(topic, self._number)
            batch = batch_of(
                rows.filter(pa.array([one == topic for one in topics])), self._next[where]
            )
            self._next[where] += len(batch)
            self._ready[where].append(batch)
        return True


@final
class _Written:
    """Number the output records of a task, by partition."""

    def __init__(self, source: int) -> None:
        self._source = source
        self._state: dict[TopicPartition, tuple[int, int]] = {}

    def rows(self, outgoing: Outgoing) -> pa.RecordBatch:
        """Return records as rows."""
        where, batch = outgoing.partition, outgoing.batch
        high, number = self._state.get(where, (-1, 0))
        highs = []
        # The running maximum is the merge key of the exchange; it keeps each task's own order.
        for timestamp in batch.timestamps:
            high = max(high, timestamp)
            highs.append(high)
        count = len(batch)
        self._state[where] = high, number + count
        headers = (
            [None] * count
            if batch.headers is None
            else [_encode(one) if one else None for one in batch.headers]
        )
        columns: list[list[Any]] = [
            [where.topic] * count,
            [where.partition] * count,
            highs,
            [self._source] * count,
            list(range(number, number + count)),
            batch.keys,
            batch.values,
            batch.timestamps,
            headers,
        ]
        return pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, ROWS, strict=True)],
            schema=ROWS,
        )

    def end(self, done: bytes) -> pa.RecordBatch:
        """Return the row with the task's final result."""
        row = [None, -1, FIRST, self._source, 0, None, done, 0, None]
        return pa.RecordBatch.from_arrays(
            [pa.array([value], field.type) for value, field in zip(row, ROWS, strict=True)],
            schema=ROWS,
        )
