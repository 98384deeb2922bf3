"""The output of a task: serialize, partition and buffer records."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from itertools import count, repeat
from typing import TYPE_CHECKING, Any, Final, cast

from ks_actors._errors import StreamsError
from ks_actors.kernel import HAS_KERNEL
from ks_actors.kernel import kernel as _kernel
from ks_actors.processors.api import refuse_awaitable, takes_headers
from ks_actors.records import Batch, EncodedBatch, Partitioner, Windowed, partition
from ks_actors.serdes import (
    HeaderSerde,
    WindowedKeySerde,
    checked_serializer,
    for_column,
    written_form,
)
from ks_actors.task._output_buffer import UNKNOWN_PARTITION, scattered
from ks_actors.topology import RecordContext
from ks_actors.tracing import UNTRACED

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import Process, ProcessBatch, RecordMetadata
    from ks_actors.records import Headers
    from ks_actors.serdes import MutableHeaders, Serde
    from ks_actors.task._app_topics import TopicSizes
    from ks_actors.task._error_handling import ExceptionHandlers
    from ks_actors.task._output_buffer import Column, OutputBuffer
    from ks_actors.task._record_context import RecordContextHolder
    from ks_actors.topology import SinkNode, TopicExtractor
    from ks_actors.tracing import TaskTracing

_LEAST: Final = 64
"""The number of records that are worth a pass that encodes them."""
_EACH: Final = 8
"""The number of records per partition that are worth it."""
_NO_ORIGIN: Final = ("", -1, -1)
"""Topic, partition and offset where no input record is known."""


class Sink:
    """One sink node of one task.

    Records with a key go to the partition of Kafka's default partitioner. Records without a key are
    spread batch by batch, or with `spread_each` one by one, so that partitions do not depend on
    batches. The production handler decides about unserializable records. A log that writes up to
    `batch_bytes` at a time gets many records encoded; other logs (0) get columns.
    """

    def __init__(
        self,
        node: SinkNode,
        *,
        topic: Callable[[str], str],
        serdes: tuple[Serde[Any], Serde[Any]],
        output: OutputBuffer,
        sizes: TopicSizes,
        current: RecordContextHolder,
        handlers: ExceptionHandlers,
        spread_each: bool = False,
        tracing: TaskTracing = UNTRACED,
        batch_bytes: int = 0,
    ) -> None:
        self._node = node
        self._topic = topic
        self._key_serde, self._value_serde = serdes
        self._output = output
        self._sizes = sizes
        self._current = current
        self._handlers = handlers
        self._spread = count()
        self._spread_each = spread_each
        self._tracing = tracing
        self._batch_bytes = batch_bytes if HAS_KERNEL else 0
        self._writers: dict[str, _TopicWriter] = {}

    @property
    def serdes(self) -> tuple[Serde[Any], Serde[Any]]:
        """The serdes of keys and values."""
        return self._key_serde, self._value_serde

    def bind(self) -> tuple[Process, ProcessBatch | None]:
        """Return the functions that write records.

        A sink with a topic per record has none for batches.
        """
        if callable(self._node.topic):
            return self._process_extracted(self._node.topic), None
        writer = self._writer(self._topic(self._node.topic))
        if self._tracing.on:
            return writer.traced_record(self._tracing), writer.traced_batch(self._tracing)
        return writer.record, writer.batch

    def _process_extracted(self, extract: TopicExtractor) -> Process:
        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            # Use the time and headers of the current record, which nodes upstream may have changed.
            # A punctuation has no input record.
            origin = self._current.metadata() or _NO_ORIGIN
            try:
                topic = extract(key, value, RecordContext(timestamp, headers, *origin))
            except Exception as error:
                raise self.failure(
                    f"the topic name extractor raised {type(error).__name__}: {error}"
                ) from error
            if not topic or not isinstance(topic, str):
                self._refuse_awaitable("the topic name extractor", extract, topic)
                raise self.failure(
                    f"the topic name extractor returned {topic!r} for a record: it must name a "
                    "topic"
                )
            self._writer(topic).record(key, value, timestamp, self._tracing.send(topic, headers))

        return process

    def _refuse_awaitable(
        self,
        role: str,
        function: Callable[..., object],
        result: object,
        record: RecordMetadata | None = None,
    ) -> None:
        try:
            refuse_awaitable(function, result, awaited=False)
        except TypeError as error:
            raise self.failure(f"{role} is wrong: {error}", record) from error

    def failure(self, text: str, record: RecordMetadata | None = None) -> StreamsError:
        """Return the error for a wrong answer of a user's function.

        The error names the current record unless another record is given.
        """
        found = record or self._current.metadata()
        return StreamsError(
            text,
            task=self._handlers.task_id,
            node=self._node.name,
            topic=None if found is None else found.topic,
            partition=None if found is None else found.partition,
            offset=None if found is None or not self._current.logged() else found.offset,
        )

    def _writer(self, topic: str) -> _TopicWriter:
        found = self._writers.get(topic)
        if found is None:
            found = self._writers[topic] = _TopicWriter(self, topic)
            self._output.sinks.setdefault(topic, self._node.name)
        return found


class _Columns(dict[int, "Column"]):
    """The columns of a topic by partition, each created at its first write.

    Columns are not created in advance, as most tasks write to few of many partitions.
    """

    def __init__(self, output: OutputBuffer, topic: str) -> None:
        super().__init__()
        self._output = output
        self._topic = topic

    def __missing__(self, number: int) -> Column:
        column = self[number] = self._output.column(self._topic, number)
        return column


class _TopicWriter:
    """The writer of a sink for one topic."""

    def __init__(self, sink: Sink, topic: str) -> None:
        self._sink = sink
        self._topic = topic
        key, value = sink._key_serde, sink._value_serde
        headers: MutableHeaders = []
        self._encode_key = checked_serializer(key, topic, is_key=True, null=True, headers=headers)
        self._encode_value = checked_serializer(value, topic, null=True, headers=headers)
        # The headers of the record that is being written, if a serde takes them.
        headed = [serde for serde in (key, value) if isinstance(serde, HeaderSerde)]
        self._headers: MutableHeaders | None = headers if headed else None
        self._adds_headers: bool = any(serde.adds_headers for serde in headed)
        self._encode_keys = for_column(self._encode_key)
        self._encode_values = for_column(self._encode_value)
        self._key_form, self._value_form = written_form(key) or 0, written_form(value) or 0
        self._custom: Callable[..., Any] | None = sink._node.partitioner
        self._partitions_by_headers: bool = takes_headers(self._custom, f"sink {sink._node.name}")
        # A partitioner that only reads a part of the serialized key can take whole batches.
        self._part: Callable[[bytes], bytes] | None = getattr(self._custom, "part", None)
        self._columns = _Columns(sink._output, topic)
        # Records of a topic with one partition always go to its column.
        self._mixed = sink._output.mixed(topic)
        # The only partition, if there is just one.
        self._only: Column | None
        # When the topic grows, `stale` is set: this costs less per record than a lookup of the
        # size.
        sink._sizes.follow(topic, self)
        self._resize()

    def _resize(self) -> None:
        """Look up the topic's number of partitions; 0 when it is unknown."""
        self.stale = False
        self._count = count = self._sink._sizes(self._topic) or 0
        self._only = None if count > 1 else self._columns[0 if count else UNKNOWN_PARTITION]
        self._partition: Partitioner = Partitioner(max(1, count))
        self._least: int = max(_LEAST, _EACH * count)
        if not (count and self._sink._batch_bytes) or self._custom is not None:
            self._least = sys.maxsize

    def record(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """Write one record."""
        if self.stale:
            self._resize()
        written = self._headers
        if written is not None:
            written[:] = headers
        part = "key"
        try:
            key_bytes = None if key is None else self._encode_key(key)
            part = "value"
            value_bytes = None if value is None else self._encode_value(value)
        except Exception as error:  # noqa: BLE001 - a serde may raise anything
            sink = self._sink
            unfit, serde = (key, sink._key_serde) if part == "key" else (value, sink._value_serde)
            sink._handlers.unserializable(
                sink._node.name,
                self._topic,
                error,
                key,
                value,
                timestamp,
                headers,
                cause=f"its {part}, {_kind(unfit)}, does not fit {serde!r}",
                remedy=_remedy(unfit, serde),
            )
            return
        if written is not None:
            headers = tuple(written)
        if self._custom is not None:
            if self._count:
                only = self._only
                for number in self._chosen(self._count, key, value, key_bytes, headers):
                    if only is not None:
                        only.append(key_bytes, value_bytes, timestamp, headers)
                    else:
                        self._mixed.append(number, key_bytes, value_bytes, timestamp, headers)
            else:
                choose = partial(
                    self._chosen,
                    key=key,
                    value=value,
                    key_bytes=key_bytes,
                    headers=headers,
                    record=self._sink._current.metadata(),
                )
                self._sink._output.unplaced(self._topic).add(
                    choose, key_bytes, value_bytes, timestamp, headers
                )
        elif self._only is not None:
            self._only.append(key_bytes, value_bytes, timestamp, headers)
        else:
            number = (
                next(self._sink._spread) % self._count
                if key_bytes is None
                else self._partition.one(key_bytes)
            )
            self._mixed.append(number, key_bytes, value_bytes, timestamp, headers)

    def batch(self, records: Batch) -> None:
        """Write many records."""
        if self.stale:
            self._resize()
        if (self._custom is not None and (self._part is None or not self._count)) or (
            self._headers is not None and (self._adds_headers or records.headers is not None)
        ):
            self._one_by_one(records)
            return
        if self._headers:
            self._headers.clear()
        # The kernel makes the bytes of some serdes' objects itself, in the pass that routes them.
        routes = records.headers is None and len(records) >= self._least
        key_form, value_form = (self._key_form, self._value_form) if routes else (0, 0)
        try:
            keys = records.keys if key_form else self._encode_keys(records.keys)
            values = records.values if value_form else self._encode_values(records.values)
            if routes and self._route(keys, values, records.timestamps):
                return
            keys = self._encode_keys(keys) if key_form else keys
            values = self._encode_values(values) if value_form else values
        except Exception:  # noqa: BLE001 - found out and decided about one by one
            self._one_by_one(records)
            return
        if not keys:
            return
        if self._only is not None:
            self._only.extend(keys, values, records.timestamps, records.headers)
        else:
            self._spread_out(keys, values, records)

    def _route(self, keys: list[Any], values: list[Any], timestamps: list[int]) -> bool:
        """Write many records encoded, in one pass; return whether that is possible."""
        forms, limit = (self._key_form, self._value_form), self._sink._batch_bytes
        parts = _kernel.route_records(keys, values, timestamps, forms, self._count, limit)
        if parts is None:
            return False
        self._settle()
        for number, part in enumerate(parts):
            if part is not None:
                self._columns[number].put(EncodedBatch(*part))
        return True

    def traced_record(self, tracing: TaskTracing) -> Process:
        """Return `record` with a span for each record."""

        def record(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            self.record(key, value, timestamp, tracing.send(self._topic, headers))

        return record

    def traced_batch(self, tracing: TaskTracing) -> ProcessBatch:
        """Return `batch` with a span for each record."""

        def batch(records: Batch) -> None:
            before = records.headers or [()] * len(records)
            headers = [tracing.send(self._topic, each) for each in before]
            self.batch(
                Batch(records.keys, records.values, records.timestamps, headers, records.offsets)
            )

        return batch

    def _spread_out(
        self, keys: list[bytes | None], values: list[bytes | None], records: Batch
    ) -> None:
        if None not in keys:
            whole = cast("list[bytes]", keys)
            numbers = self._partition(whole if self._part is None else list(map(self._part, whole)))
        else:
            of_key = self._part
            without = (
                self._sink._spread if self._sink._spread_each else repeat(next(self._sink._spread))
            )
            numbers = [
                next(without) % self._count
                if key is None
                else partition(key if of_key is None else of_key(key), self._count)
                for key in keys
            ]
        headers = records.headers
        timestamps = records.timestamps
        if len(numbers) < self._count:  # most partitions get none
            self._mixed.extend(numbers, Batch(keys, values, timestamps, headers))
            return
        self._settle()
        # `count` runs in C and is cheaper than a set.
        if numbers and numbers.count(numbers[0]) == len(numbers):  # common: input keys
            self._columns[numbers[0]].extend(keys, values, timestamps, headers)
            return
        for number, part in scattered(numbers, keys, values, timestamps, headers):
            self._columns[number].extend(*part)

    def _settle(self) -> None:
        """Have all records so far in the columns of their partitions."""
        if self._mixed.numbers:
            self._sink._output.settle(self._topic)

    def _one_by_one(self, records: Batch) -> None:
        headers: Iterable[Headers] = repeat(()) if records.headers is None else records.headers
        current = self._sink._current
        offsets: Iterable[int] = (
            records.offsets if len(records.offsets) == len(records) else repeat(current.offset)
        )
        for key, value, timestamp, header, offset in zip(
            records.keys, records.values, records.timestamps, headers, offsets, strict=False
        ):
            # Errors and partitioners see their own record, not the last record of the batch.
            current.offset = offset
            self.record(key, value, timestamp, header)

    def _chosen(
        self,
        count: int,
        key: Any,
        value: Any,
        key_bytes: bytes | None,
        headers: Headers,
        record: RecordMetadata | None = None,
    ) -> Iterable[int]:
        """Return the partitions that the user's partitioner chooses.

        An empty list drops the record (KIP-837).
        """
        custom = self._custom
        try:
            if self._part is not None:
                chosen: Any = None if key_bytes is None else partition(self._part(key_bytes), count)
            elif custom is None:
                chosen = None
            elif self._partitions_by_headers:
                chosen = custom(self._topic, key, value, headers, count)
            else:
                chosen = custom(self._topic, key, value, count)
        except Exception as error:
            raise self._sink.failure(
                f"the partitioner of topic {self._topic} raised {type(error).__name__}: {error}",
                record,
            ) from error
        if chosen is None:
            return (
                next(self._sink._spread) % count
                if key_bytes is None
                else partition(key_bytes, count),
            )
        if custom is not None and type(chosen) is not int:
            self._sink._refuse_awaitable(
                f"the partitioner of topic {self._topic}", custom, chosen, record
            )
        numbers = tuple(chosen) if isinstance(chosen, Iterable) else (chosen,)
        # An empty list is the user's decision, so the record counts as dropped.
        if not numbers:
            self._sink._handlers.dropped(1)
        for number in numbers:
            if not isinstance(number, int) or not 0 <= number < count:
                raise self._sink.failure(
                    f"the partitioner returned partition {number!r} of topic {self._topic}, which "
                    f"has {count}",
                    record,
                )
        return numbers


def _kind(unfit: object) -> str:
    name = type(unfit).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _remedy(unfit: object, serde: Serde[Any]) -> str:
    if isinstance(unfit, Windowed) and not isinstance(serde, WindowedKeySerde):
        return "name serdes.windowed(…) of the key's own serde, as in Produced(windowed(…), …)"
    return "forward one that fits, or name another serde for the topic, as in Produced(…)"
