"""The input and output topics of a topology in a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from ks_actors._hints import Hinted
from ks_actors.lifecycle import check_instant, check_span
from ks_actors.serdes import reader, writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from datetime import datetime, timedelta

    from ks_actors.records import Headers
    from ks_actors.serdes import Serde

K = TypeVar("K")
V = TypeVar("V")


class TestRecord(NamedTuple, Generic[K, V]):
    """A record as a test sees it."""

    key: K | None
    value: V | None
    timestamp: int
    headers: Headers = ()


TestRecord.__test__ = False  # type: ignore[attr-defined]  # no test case, whatever its name says


class _Written(Protocol):
    def take(self, topic: str) -> tuple[bytes | None, bytes | None, int, Headers] | None: ...

    def count(self, topic: str) -> int: ...


class _Input(Generic[K, V]):
    """The common part of both input topics: serdes, and the timestamp of records that have none."""

    __test__ = False

    def __init__(
        self, name: str, key: Serde[K], value: Serde[V], start: int, advance: int | timedelta
    ) -> None:
        self.name: str = name
        self._key = writer(key, name, is_key=True)
        self._value = writer(value, name)
        self._time: int = start
        self._advance: int = check_span(advance, "auto_advance_ms")

    def _encoded(
        self,
        key: K | None,
        value: V | None,
        timestamp_ms: int | datetime | timedelta | None,
        headers: Headers,
    ) -> tuple[bytes | None, bytes | None, int, Headers]:
        written = list(headers)
        return (
            None if key is None else self._key(key, written),
            None if value is None else self._value(value, written),
            self._timestamp(timestamp_ms),
            tuple(written),
        )

    def _timestamp(self, given: int | datetime | timedelta | None) -> int:
        """Return the timestamp of a record; by default the topic's own."""
        if given is None:
            time = self._time
            self._time += self._advance
            return time
        return check_instant(given, "timestamp_ms")


class TestInputTopic(_Input[K, V], metaclass=Hinted):
    """A topic into which a test pipes records."""

    __test__ = False

    def __init__(
        self,
        name: str,
        key: Serde[K],
        value: Serde[V],
        pipe: Callable[[str, bytes | None, bytes | None, int, Headers], None],
        start: int,
        advance: int | timedelta,
    ) -> None:
        super().__init__(name, key, value, start, advance)
        self._pipe = pipe

    def pipe_input(
        self,
        key: K | None,
        value: V | None,
        timestamp_ms: int | datetime | timedelta | None = None,
        headers: Headers = (),
    ) -> None:
        """Process one record, and everything that it causes.

        Without a timestamp, the record gets the topic's own timestamp, which then advances.
        """
        self._pipe(self.name, *self._encoded(key, value, timestamp_ms, headers))

    def pipe_raw(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | datetime | timedelta | None = None,
        headers: Headers = (),
    ) -> None:
        """Process one record, of any bytes, as if it came from the log.

        Without a timestamp, the record gets the topic's own timestamp, which then advances.
        """
        self._pipe(self.name, key, value, self._timestamp(timestamp_ms), headers)

    def pipe_key_value_list(self, pairs: Iterable[tuple[K | None, V | None]]) -> None:
        """Process records one after the other."""
        for key, value in pairs:
            self.pipe_input(key, value)

    def advance_time(self, ms: int | timedelta) -> None:
        """Advance the timestamp of records without a timestamp."""
        self._time += check_span(ms, "the time to advance")


class AsyncTestInputTopic(_Input[K, V], metaclass=Hinted):
    """The `TestInputTopic` of an `AsyncTopologyTestDriver`: its calls that process are awaited."""

    __test__ = False

    def __init__(
        self,
        name: str,
        key: Serde[K],
        value: Serde[V],
        pipe: Callable[[str, bytes | None, bytes | None, int, Headers], Awaitable[None]],
        start: int,
        advance: int | timedelta,
    ) -> None:
        super().__init__(name, key, value, start, advance)
        self._pipe = pipe

    async def pipe_input(
        self,
        key: K | None,
        value: V | None,
        timestamp_ms: int | datetime | timedelta | None = None,
        headers: Headers = (),
    ) -> None:
        """Process one record, and everything that it causes.

        Without a timestamp, the record gets the topic's own timestamp, which then advances.
        """
        await self._pipe(self.name, *self._encoded(key, value, timestamp_ms, headers))

    async def pipe_raw(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | datetime | timedelta | None = None,
        headers: Headers = (),
    ) -> None:
        """Process one record, of any bytes, as if it came from the log.

        Without a timestamp, the record gets the topic's own timestamp, which then advances.
        """
        await self._pipe(self.name, key, value, self._timestamp(timestamp_ms), headers)

    async def pipe_key_value_list(self, pairs: Iterable[tuple[K | None, V | None]]) -> None:
        """Process records one after the other."""
        for key, value in pairs:
            await self.pipe_input(key, value)

    def advance_time(self, ms: int | timedelta) -> None:
        """Advance the timestamp of records without a timestamp."""
        self._time += check_span(ms, "the time to advance")


class TestOutputTopic(Generic[K, V], metaclass=Hinted):
    """A topic from which a test reads records, each once, in order.

    All methods raise UnknownTopicOrPartition when the topology does not write the topic.
    """

    __test__ = False

    def __init__(self, name: str, key: Serde[K], value: Serde[V], written: _Written) -> None:
        self.name: str = name
        self._key = reader(key, name, is_key=True)
        self._value = reader(value, name)
        self._written = written

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read."""
        return self._written.count(self.name) == 0

    @property
    def queue_size(self) -> int:
        """The number of unread records."""
        return self._written.count(self.name)

    def read_record(self) -> TestRecord[K, V]:
        """Return the next record. Raises LookupError if there is none."""
        record = self._written.take(self.name)
        if record is None:
            raise LookupError(f"nothing more was written to topic {self.name!r}")
        key, value, timestamp, headers = record
        left = list(headers)
        return TestRecord(
            None if key is None else self._key(key, left),
            None if value is None else self._value(value, left),
            timestamp,
            tuple(left),
        )

    def read_key_value(self) -> tuple[K | None, V | None]:
        """Return key and value of the next record. Raises LookupError if there is none."""
        record = self.read_record()
        return record.key, record.value

    def read_value(self) -> V | None:
        """Return the value of the next record. Raises LookupError if there is none."""
        return self.read_record().value

    def read_records_to_list(self) -> list[TestRecord[K, V]]:
        """Return all unread records."""
        return [self.read_record() for _ in range(self.queue_size)]

    def read_values_to_list(self) -> list[V | None]:
        """Return the values of all unread records."""
        return [record.value for record in self.read_records_to_list()]

    def read_key_values_to_list(self) -> list[tuple[K | None, V | None]]:
        """Return keys and values of all unread records."""
        return [(record.key, record.value) for record in self.read_records_to_list()]

    def read_key_values_to_map(self) -> dict[K | None, V | None]:
        """Return the last value of each key of all unread records."""
        return dict(self.read_key_values_to_list())
