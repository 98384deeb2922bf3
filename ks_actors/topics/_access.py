"""The calls with which programs send and read records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from ks_actors.log import IsolationLevel
from ks_actors.topics._topics import Topics, check_records

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Collection, Iterable
    from datetime import datetime, timedelta
    from typing import Literal, TypeAlias

    from ks_actors.processors.api import Record
    from ks_actors.records import Headers
    from ks_actors.serdes import SerdeOrType
    from ks_actors.topics._reading import ReadFrom
    from ks_actors.topics._records import SentRecord, TopicRecord
    from ks_actors.topology import Topic

K = TypeVar("K")
V = TypeVar("V")

if TYPE_CHECKING:
    Isolation: TypeAlias = IsolationLevel | Literal["read_committed", "read_uncommitted"]
    _ToSend: TypeAlias = (
        tuple[K | None, V | None]
        | Record[K, V]
        | Record[K | None, V]
        | Record[K, V | None]
        | TopicRecord[K, V]
    )
    Records: TypeAlias = Iterable[_ToSend[K, V]] | AsyncIterable[_ToSend[K, V]]


class TopicAccess:
    """Send records to topics, and read them."""

    async def _open_topics(self) -> Topics:
        """Return the open topics. Raises NotRunning."""
        raise NotImplementedError

    @overload
    async def send(
        self,
        topic: Topic[K, V],
        key: K | None,
        value: V | None,
        *,
        partition: int | None = None,
        timestamp_ms: int | datetime | timedelta | None = None,
        headers: Headers = (),
    ) -> SentRecord: ...
    @overload
    async def send(
        self,
        topic: str,
        key: K | None,
        value: V | None,
        *,
        key_serde: SerdeOrType[K] | None = None,
        value_serde: SerdeOrType[V] | None = None,
        partition: int | None = None,
        timestamp_ms: int | datetime | timedelta | None = None,
        headers: Headers = (),
    ) -> SentRecord: ...
    async def send(
        self,
        topic: Topic[Any, Any] | str,
        key: Any,
        value: Any,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        partition: int | None = None,
        timestamp_ms: int | datetime | timedelta | None = None,
        headers: Headers = (),
    ) -> SentRecord:
        """Send a record, and return its place once all in-sync replicas have it.

        Serdes are those of the Topic, or serdes or types given beside its name; else those with
        which the topology reads or writes the topic, else the config's defaults. The record goes to
        `partition`, or where the topic's partitioner sends it. Kafka's, the default, takes the hash
        of the key, or all partitions in turn for records without key. `timestamp_ms`
        (ms since 1970, or a datetime with a zone) defaults to the clock. None as value deletes the
        key.

        Call it from any task of the event loop. Calls at the same time share requests, so send many
        records by `asyncio.gather`, or by `send_many`. Records of one partition are written in the
        order of calls. While 32 MiB are not acknowledged, calls wait.

        A record is written once, also when requests are repeated. It is no part of an app's
        transactions: work that is repeated after a failure sends its records again. A cancelled
        call sends nothing if the write has not begun; otherwise the record may be written.

        Serdes that take headers may add to `headers`. Serdes with schemas in a registry look these
        up first, in one lookup for all calls that wait.

        Raises TopologyError for an unknown serde, SerializationError, UnknownTopicOrPartition,
        RecordTooLarge, InvalidRecord, NotAuthorized, StreamsError for a wrong answer of a
        partitioner, and NotRunning before the start and after the close. Raises LogTimeout after
        `delivery_timeout_ms`; then the record may be written. Raises RegistryError for schemas
        that are refused, or not found by then.
        """
        topics = await self._open_topics()
        return await topics.send(
            topic,
            key,
            value,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
            key_serde=key_serde,
            value_serde=value_serde,
        )

    @overload
    async def send_many(self, topic: Topic[K, V], records: Records[K, V]) -> int: ...
    @overload
    async def send_many(
        self,
        topic: str,
        records: Records[K, V],
        *,
        key_serde: SerdeOrType[K] | None = None,
        value_serde: SerdeOrType[V] | None = None,
    ) -> int: ...
    async def send_many(
        self,
        topic: Topic[Any, Any] | str,
        records: Any,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
    ) -> int:
        """Send records in their order, and return their number once all are acknowledged.

        `records` is an iterable, plain or async: of pairs of key and value, of Records, or of
        records that were read, which keep their timestamps and headers. It is read no faster than
        records can be written. Serdes, partitions and errors are those of `send`.

        An error concerns a block of up to 1,000 records: all records before the block are written,
        and some records in or after it may be. A cancellation drops the records that are not being
        written yet.
        """
        topics = await self._open_topics()
        return await topics.send_many(topic, records, key_serde=key_serde, value_serde=value_serde)

    @overload
    def records(
        self,
        topic: Topic[K, V],
        *,
        from_: ReadFrom = "earliest",
        until: Literal["end"] | None = None,
        partitions: Collection[int] | None = None,
        isolation: Isolation = IsolationLevel.READ_COMMITTED,
        skip_bad: bool = False,
    ) -> AsyncGenerator[TopicRecord[K, V], None]: ...
    @overload
    def records(
        self,
        topic: str,
        *,
        key_serde: SerdeOrType[K],
        value_serde: SerdeOrType[V],
        from_: ReadFrom = "earliest",
        until: Literal["end"] | None = None,
        partitions: Collection[int] | None = None,
        isolation: Isolation = IsolationLevel.READ_COMMITTED,
        skip_bad: bool = False,
    ) -> AsyncGenerator[TopicRecord[K, V], None]: ...
    @overload
    def records(
        self,
        topic: str,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        from_: ReadFrom = "earliest",
        until: Literal["end"] | None = None,
        partitions: Collection[int] | None = None,
        isolation: Isolation = IsolationLevel.READ_COMMITTED,
        skip_bad: bool = False,
    ) -> AsyncGenerator[TopicRecord[Any, Any], None]: ...
    def records(
        self,
        topic: Topic[Any, Any] | str,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        from_: ReadFrom = "earliest",
        until: Literal["end"] | None = None,
        partitions: Collection[int] | None = None,
        isolation: Isolation = IsolationLevel.READ_COMMITTED,
        skip_bad: bool = False,
    ) -> AsyncGenerator[TopicRecord[Any, Any], None]:
        """Return the records of a topic, for `async for`: those of each partition in order.

        Begins at `from_`: the first record, the end, a time (datetime, UTC unless it has a zone), a
        timedelta before now, or offsets by partition. Ends before the end offsets of the first step
        with `until="end"`, otherwise follows the topic for ever. Joins no group and commits
        nothing. `partitions` are all by default. Records of open and aborted transactions are left
        out unless `isolation` is `read_uncommitted`. Serdes are found as by `send`; records have
        the headers that the serdes leave.

        Leaving the loop, or a cancellation, closes the reader; the close of the app or Publisher
        ends it with NotRunning. With `skip_bad` a warning tells of records that cannot be read, in
        place of the error.

        Raises DeserializationFailed, which names topic, partition and offset; TopologyError for an
        unknown serde and wrong arguments; UnknownTopicOrPartition; OffsetOutOfRange for records
        that were deleted while the topic is followed; LogTimeout when the log does not answer for
        `default_api_timeout_ms`; NotAuthorized; NotRunning; RegistryError while schemas cannot be
        looked up.
        """
        check_records(from_=from_, until=until, isolation=isolation)
        return Topics.records(
            self._open_topics,
            topic,
            from_=from_,
            until=until,
            partitions=partitions,
            isolation=isolation,
            skip_bad=skip_bad,
            key_serde=key_serde,
            value_serde=value_serde,
        )
