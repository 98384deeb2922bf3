"""Topics of a log, written and read by a program."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable
from contextlib import aclosing, suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from ks_actors._errors import (
    LogClosed,
    NotRunning,
    TopicExists,
    TopologyError,
    UnknownTopicOrPartition,
)
from ks_actors.lifecycle import check_instant, component_log
from ks_actors.log import IsolationLevel, NewTopic
from ks_actors.processors.api import Record, check_times_and_headers
from ks_actors.serdes import NeedsToRead
from ks_actors.topics._formats import TopicFormats
from ks_actors.topics._lookups import Lookups
from ks_actors.topics._reading import check_from, partitions_of, positions_of, read_batches
from ks_actors.topics._records import SentRecord, TopicRecord
from ks_actors.topics._sender import Entry, RecordSender, size_of
from ks_actors.topology import by_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable
    from datetime import datetime, timedelta
    from typing import Literal

    from ks_actors._errors import DeserializationFailed
    from ks_actors.config import StreamsConfig
    from ks_actors.log import Fetcher, Log
    from ks_actors.records import Headers, Partitioner
    from ks_actors.topics._formats import TopicFormat
    from ks_actors.topics._reading import ReadFrom
    from ks_actors.topics._sender import TopicOutput
    from ks_actors.topology import ByTopic, Topic, Topology

_log = component_log(__name__)
# The most records of `send_many` that are encoded before other tasks run.
_BLOCK: Final = 1_000


@final
class Topics:
    """Send records to topics of an open log, and read them; for an app, or for a Publisher.

    `who` names the owner in errors. Once closed, calls raise NotRunning.
    """

    def __init__(
        self,
        log: Log,
        config: StreamsConfig,
        topology: Topology | None = None,
        *,
        clock: Callable[[], int],
        who: str,
    ) -> None:
        self._log = log
        self._clock = clock
        self._who = who
        self._client_id = f"{config.client_id}-publisher"
        self._timeout_ms = config.default_api_timeout_ms
        self._formats = TopicFormats(config, topology)
        self._fetchers: set[Fetcher] = set()
        self._sender = RecordSender(
            log,
            client_id=self._client_id,
            who=who,
            clock=clock,
            timeout_ms=config.delivery_timeout_ms,
            max_age_ms=config.metadata_max_age_ms,
        )
        self._lookups = Lookups(self._sender, who=who, timeout_ms=config.delivery_timeout_ms)

    # --- write ------------------------------------------------------------------------------------

    async def send(
        self,
        topic: Topic[Any, Any] | str,
        key: Any,
        value: Any,
        *,
        partition: int | None = None,
        timestamp_ms: int | datetime | timedelta | None = None,
        headers: Headers = (),
        key_serde: Any = None,
        value_serde: Any = None,
    ) -> SentRecord:
        """Send one record; see `App.send`."""
        sender = self._sender
        sender.check_open()
        form = self._formats.of(topic, key_serde, value_serde, of="send")
        timestamp = (
            self._clock() if timestamp_ms is None else check_instant(timestamp_ms, "timestamp_ms")
        )
        check_times_and_headers(timestamp, headers, f"send gives topic {form.name}")
        deadline = sender.deadline()
        if not form.ready:
            await self._lookups.before_writing(form, deadline)
        key_bytes, value_bytes, headers = form.encode(key, value, tuple(headers))
        entry = Entry(
            [key_bytes],
            [value_bytes],
            [timestamp],
            [headers] if headers else None,
            size_of(key_bytes, value_bytes, headers),
            sender.loop.create_future(),
            deadline,
        )
        if sender.has_room():
            sender.take(entry.size)
        else:
            await sender.wait_for_room(entry.size, entry.deadline)
        output = sender.topic(form.name)

        def place(partitions: Partitioner) -> int:
            if partition is not None:
                return _checked(form.name, partition, partitions)
            return form.places([key], [value], [key_bytes], [headers], partitions, output.spread)[0]

        output.put(entry, place)
        offset = await entry.written
        return SentRecord(form.name, entry.number, offset, timestamp)

    async def send_many(
        self,
        topic: Topic[Any, Any] | str,
        records: Iterable[Any] | AsyncIterable[Any],
        *,
        key_serde: Any = None,
        value_serde: Any = None,
    ) -> int:
        """Send many records; see `App.send_many`."""
        self._sender.check_open()
        form = self._formats.of(topic, key_serde, value_serde, of="send_many")
        output = self._sender.topic(form.name)
        pending: deque[asyncio.Future[int]] = deque()
        total = 0
        try:
            async with aclosing(_blocks(records)) as blocks:
                async for block in blocks:
                    for entry in await self._entries(form, output, block):
                        pending.append(entry.written)
                        output.lane(entry.number).put(entry)
                    total += len(block)
                    while pending and pending[0].done():
                        pending.popleft().result()
            await _all_written(pending)
        except Exception:
            # The records before the faulty record are sent, and their errors come first.
            await _all_written(pending)
            raise
        finally:
            # After a cancellation, drop the records that are not being written.
            for written in pending:
                if not written.cancel():
                    written.exception()
        return total

    async def _entries(
        self, form: TopicFormat, output: TopicOutput, block: list[_Item]
    ) -> list[Entry]:
        """Return a block of records by partition, once there is room for them."""
        sender = self._sender
        deadline = sender.deadline()
        now = self._clock()
        if not form.ready:
            await self._lookups.before_writing(form, deadline)
        keys, values, timestamps, given = map(list, zip(*block, strict=True))
        encoded_keys, encoded_values, left = form.encode_columns(keys, values, given)
        partitions = await output.known(deadline)
        numbers = form.places(keys, values, encoded_keys, left, partitions, output.spread)
        made: dict[int, Entry] = {}
        for number, key, value, timestamp, headers in zip(
            numbers, encoded_keys, encoded_values, timestamps, left, strict=True
        ):
            entry = made.get(number)
            if entry is None:
                entry = made[number] = Entry(
                    [], [], [], [], 0, sender.loop.create_future(), deadline
                )
                entry.number = number
            entry.keys.append(key)
            entry.values.append(value)
            entry.timestamps.append(now if timestamp is None else timestamp)
            assert entry.headers is not None
            entry.headers.append(headers)
            entry.size += size_of(key, value, headers)
        for entry in made.values():
            if not any(entry.headers or ()):
                entry.headers = None
        size = sum(entry.size for entry in made.values())
        if sender.has_room():
            sender.take(size)
        else:
            await sender.wait_for_room(size, deadline)
        sender.check_open()
        return list(made.values())

    async def create(self, topics: ByTopic[int | NewTopic]) -> None:
        """Create the topics that do not exist."""
        self._sender.check_open()
        topics = by_name(topics)
        existing = await self._log.describe_topics(topics, configs=False)
        wanted = [
            each if isinstance(each, NewTopic) else NewTopic(name, each)
            for name, each in topics.items()
            if name not in existing
        ]
        if wanted:
            # Another program may be faster, or an unanswered attempt may have created them.
            with suppress(TopicExists):
                await self._log.create_topics(wanted)

    # --- read -------------------------------------------------------------------------------------

    @staticmethod
    async def records(
        open_topics: Callable[[], Awaitable[Topics]],
        topic: Topic[Any, Any] | str,
        *,
        from_: ReadFrom,
        until: Literal["end"] | None,
        partitions: Collection[int] | None,
        isolation: IsolationLevel | str,
        skip_bad: bool,
        key_serde: Any,
        value_serde: Any,
    ) -> AsyncGenerator[TopicRecord[Any, Any], None]:
        """Yield the records of a topic; see `App.records`."""
        self = await open_topics()
        self._sender.check_open()
        level = IsolationLevel(isolation)
        form = self._formats.of(topic, key_serde, value_serde, of="records")
        form.check_readable()
        places = await partitions_of(self._log, form.name, partitions)
        ends = await self._log.end_offsets(places, level) if until == "end" else None
        positions = await positions_of(self._log, places, from_, level, self._clock)
        bad = _BadRecords(form.name)
        needs = NeedsToRead(form.name, *form.serdes)
        fetcher = self._log.fetcher(client_id=self._client_id, isolation=level)
        self._fetchers.add(fetcher)
        batches = read_batches(fetcher, positions, ends=ends, timeout_ms=self._timeout_ms)
        try:
            async with aclosing(batches):
                async for fetched in batches:
                    place = fetched.partition
                    if needs.waits:
                        await self._lookups.before_reading(needs, fetched)
                    batch, keys, values = form.decode(
                        fetched.batch, place, bad.skip if skip_bad else None
                    )
                    for key, value, timestamp, headers, offset in zip(
                        keys,
                        values,
                        batch.timestamps,
                        repeat(()) if batch.headers is None else batch.headers,
                        batch.offsets,
                        strict=False,
                    ):
                        yield TopicRecord(
                            key, value, timestamp, headers, place.topic, place.partition, offset
                        )
                    # A topic with much to read must not keep the loop from all others.
                    await asyncio.sleep(0)
        except LogClosed as closed:
            if not self._sender.closed:
                raise
            raise NotRunning(f"{self._who} was closed while topic {form.name} was read") from closed
        finally:
            self._fetchers.discard(fetcher)
            bad.tell()

    # --- end --------------------------------------------------------------------------------------

    async def close(self, until: float) -> None:
        """Wait for sent records until a time of the loop, and end all reads.

        Records without an acknowledgment by then fail with NotRunning.
        """
        await self._lookups.close(until)
        await self._sender.close(until)
        for fetcher in tuple(self._fetchers):
            await fetcher.close()


async def _all_written(pending: Collection[asyncio.Future[int]]) -> None:
    """Wait for the outcomes of records; raise the first error."""
    if pending:
        await asyncio.wait(pending)
    for written in pending:
        written.result()


_Item: TypeAlias = "tuple[Any, Any, int | None, Headers]"


async def _blocks(records: Iterable[Any] | AsyncIterable[Any]) -> AsyncGenerator[list[_Item], None]:
    """Yield records with their timestamps, if given, and headers, many at once."""
    block: list[_Item] = []
    if isinstance(records, AsyncIterable):
        async for record in records:
            block.append(_item(record))
            if len(block) == _BLOCK:
                yield block
                block = []
    else:
        for record in records:
            block.append(_item(record))
            if len(block) == _BLOCK:
                yield block
                block = []
                # Let other tasks run.
                await asyncio.sleep(0)
    if block:
        yield block


def _item(record: Any) -> _Item:
    """Return the parts of a record of `send_many`. Raises TypeError and ValueError."""
    match record:
        case Record():
            timestamp, headers = record.timestamp, record.headers
        case TopicRecord():
            timestamp, headers = record.timestamp_ms, record.headers
        case (key, value):
            return key, value, None, ()
        case _:
            raise TypeError(
                f"send_many got {type(record).__name__}: give pairs of key and value, or Records, "
                "which have timestamps and headers too"
            )
    check_times_and_headers(timestamp, headers, "send_many gives")
    return record.key, record.value, timestamp, tuple(headers)


def _checked(topic: str, number: int, partitions: Partitioner) -> int:
    """Return the number of an existing partition. Raises UnknownTopicOrPartition."""
    if not 0 <= number < partitions.partitions:
        raise UnknownTopicOrPartition(
            f"topic {topic} has partitions 0 to {partitions.partitions - 1}, and no {number}"
        )
    return number


def check_records(*, from_: object, until: object, isolation: object) -> None:
    """Raise TopologyError for an argument of `records` that is wrong."""
    check_from(from_, "records")
    if until not in {None, "end"}:
        raise TopologyError(
            f"argument 'until' of records is {until!r}: give 'end', for the records that there are "
            "now, or None, to follow the topic"
        )
    try:
        IsolationLevel(isolation)
    except ValueError:
        raise TopologyError(
            f"argument 'isolation' of records is {isolation!r}: give 'read_committed' or "
            "'read_uncommitted'"
        ) from None


@final
class _BadRecords:
    """Unreadable records that a reader skips: the first is logged, and the number at the end."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._count = 0

    def skip(self, error: DeserializationFailed) -> None:
        """Note a record."""
        self._count += 1
        if self._count == 1:
            _log.warning("%s; it is skipped, and further ones are counted", error)

    def tell(self) -> None:
        """Log the number of records, if there were several."""
        if self._count > 1:
            _log.warning(
                "%d records of topic %s could not be read, and were skipped",
                self._count,
                self._topic,
            )
