"""Publish the output of a backfill to its topics, exactly once across repeated runs."""

from __future__ import annotations

import asyncio
import time
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, final
from zlib import crc32

import msgspec

from ks_actors._errors import LogTimeout, PublishRefused, TopicExists, UnknownTopicOrPartition
from ks_actors.config import opened
from ks_actors.lifecycle import in_thread
from ks_actors.log import GroupMetadata, IsolationLevel, NewTopic, Outgoing, TransactionScope
from ks_actors.records import Batch, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ks_actors.batch.backfill._result import Backfill
    from ks_actors.config import StreamsConfig
    from ks_actors.log import Log, TransactionalProducer

MARKERS: Final = "backfill-markers"
"""The suffix of the name of the marker topic; the application id is its prefix."""

_NOBODY: Final = GroupMetadata("", -1, "")
_AT_ONCE: Final = 50_000
_AT_ONCE_BYTES: Final = 32 << 20
_SLICE: Final = 1_000
_TIMEOUT_MS: Final = 60_000
_MARGIN_MS: Final = 30_000
_encode = msgspec.msgpack.Encoder().encode


class Marker(msgspec.Struct, frozen=True):
    """A job's progress in a partition.

    The marker has the number of records written, their checksum, the next offset, and whether all
    records are written.
    """

    records: int
    checksum: int
    end: int
    whole: bool


class _Name(msgspec.Struct, frozen=True, array_like=True):
    job: str
    topic: str
    partition: int


async def publish_backfill(
    done: Backfill,
    config: StreamsConfig,
    *,
    job: str = "backfill",
    log: Log | None = None,
    progress: Callable[[TopicPartition, int], None] | None = None,
) -> dict[str, int]:
    """Write the output of a backfill to its topics, once per `job`.

    Return the number of new records by topic. Each partition gets its records in order, in
    transactions of at most 50,000 records. Each transaction also writes a progress marker to the
    compacted topic `<application id>-backfill-markers`. So a repeated run writes only the missing
    records, wherever the last run was killed. If two runs overlap, the older run raises Fenced. The
    records equal those of a stream and do not show that a backfill wrote them.

    A repeated job must produce the same records. Raises PublishRefused, before it writes anything,
    if they differ (other ranges, another topology, impure functions) or are no longer in the log.
    Raises UnknownTopicOrPartition for missing topics, LogTimeout if another job's transaction stays
    open in front of the markers, and LogError. `log` replaces the config's log. `progress` is
    called after each transaction with the partition and the number of its records written so far.
    """
    async with opened(config, log) as used:
        return await _Publisher(done, config, job, used, progress).run()


@final
class _Publisher:
    """The publication of one job."""

    def __init__(
        self,
        done: Backfill,
        config: StreamsConfig,
        job: str,
        log: Log,
        progress: Callable[[TopicPartition, int], None] | None,
    ) -> None:
        self._done = done
        self._config = config
        self._job = job
        self._log = log
        self._progress = progress
        self._markers = TopicPartition(f"{config.application_id}-{MARKERS}", 0)
        # The app's own timeout may be as short as its commit interval; writing a chunk takes
        # longer.
        self._timeout_ms: int = max(config.transaction_timeout_ms, _TIMEOUT_MS)

    async def run(self) -> dict[str, int]:
        partitions = await in_thread(lambda: self._done.partitions)
        await self._check_topics(partitions)
        # The new producer fences earlier runs of this job, so its markers are complete.
        name = f"{self._config.application_id}-{self._job}-publish"
        scope = TransactionScope(
            topics=frozenset({where.topic for where in partitions} | {self._markers.topic})
        )
        producer = await self._log.transactional_producer(
            name,
            client_id=f"{self._config.client_id}-publish",
            timeout_ms=self._timeout_ms,
            scope=scope,
        )
        try:
            known = await self._known()
            # Check before the first record is written: a mismatch must leave the topics unchanged.
            await self._check(known, partitions)
            counts = dict.fromkeys(sorted({where.topic for where in partitions}), 0)
            for where in partitions:
                counts[where.topic] += await self._publish(
                    producer, where, known.get(where, Marker(0, 0, 0, whole=False))
                )
            return counts
        finally:
            await producer.close()

    async def _check_topics(self, partitions: Iterable[TopicPartition]) -> None:
        """Create the marker topic, and check that the others exist."""
        topics = {where.topic for where in partitions}
        found = await self._log.describe_topics([*topics, self._markers.topic])
        if missing := sorted(topics - set(found)):
            raise UnknownTopicOrPartition(
                f"the topics {', '.join(missing)} to publish to do not exist: create them"
            )
        if self._markers.topic not in found:
            try:
                await self._log.create_topics(
                    [NewTopic(self._markers.topic, 1, {"cleanup.policy": "compact"})]
                )
            except TopicExists:  # Another run created it first.
                return

    async def _known(self) -> dict[TopicPartition, Marker]:
        """Return the markers of this job. Raises LogTimeout."""
        where, found = self._markers, dict[TopicPartition, Marker]()
        at = (await self._log.begin_offsets([where]))[where]
        # Read to the end of uncommitted data. A killed job of the same app may have left a
        # transaction open in front of this job's markers, and committed reads stop there until it
        # ends.
        end = (await self._log.end_offsets([where], IsolationLevel.READ_UNCOMMITTED))[where]
        fetcher = self._log.fetcher(
            client_id=f"{self._config.client_id}-publish", isolation=IsolationLevel.READ_COMMITTED
        )
        try:
            fetcher.assign({where: at})
            async with asyncio.timeout((self._timeout_ms + _MARGIN_MS) / 1000):
                while at < end:
                    for fetched in await fetcher.fetch(max_wait_ms=100):
                        at = fetched.next_offset
                        self._note(fetched.batch, found)
        except TimeoutError as late:
            raise LogTimeout(
                f"job {self._job!r} of {self._config.application_id} could not read its markers "
                f"for {self._timeout_ms + _MARGIN_MS:,} ms: a transaction is open in {where} at "
                f"offset {at}, of {end}. Nothing was written. Try again when the other job has "
                "ended"
            ) from late
        finally:
            await fetcher.close()
        return found

    def _note(self, batch: Batch, found: dict[TopicPartition, Marker]) -> None:
        for key, value in zip(batch.keys, batch.values, strict=True):
            name = msgspec.json.decode(key or b"", type=_Name)
            if name.job == self._job and value is not None:
                found[TopicPartition(name.topic, name.partition)] = msgspec.json.decode(
                    value, type=Marker
                )

    async def _check(
        self, known: dict[TopicPartition, Marker], partitions: Iterable[TopicPartition]
    ) -> None:
        """Compare the published records with the current records. Raises PublishRefused."""
        # Use uncommitted ends: another job's open transaction may precede this job's records.
        ends = await self._log.end_offsets(known, IsolationLevel.READ_UNCOMMITTED) if known else {}
        there = set(partitions)
        for where, marker in sorted(known.items()):
            if ends[where] < marker.end:
                why = (
                    f"ends at offset {ends[where]}, but the job had written up to {marker.end}: "
                    "the topic was deleted meanwhile"
                )
                raise self._refused(where, why)
            records, checksum, more = (
                await in_thread(self._sum, where, marker.records)
                if where in there
                else (0, 0, False)
            )
            # Compare a checksum of all records so far: a changed function may give as many, but
            # different records.
            if records != marker.records or checksum != marker.checksum:
                raise self._refused(
                    where,
                    f"has {marker.records:,} records of this job, which this run does not produce",
                )
            if marker.whole and more:
                raise PublishRefused(
                    f"job {self._job!r} of {self._config.application_id} is not published: {where} "
                    f"has all {marker.records:,} records of this job, and this run gives further "
                    "records after them: its topics have grown. Nothing was written. Give `until` "
                    "the ends of the earlier run; the started app reads later records"
                )

    def _refused(self, where: TopicPartition, why: str) -> PublishRefused:
        return PublishRefused(
            f"job {self._job!r} of {self._config.application_id} is not published: {where} {why}. "
            "Nothing was written. Run it over the same ranges with the same topology, or name "
            "another job to write everything again"
        )

    def _sum(self, where: TopicPartition, most: int) -> tuple[int, int, bool]:
        """Return the record count (at most `most`), its checksum, and whether there are more."""
        count = checksum = 0
        for batch in self._done.read(where):
            part = batch.slice(0, most - count) if len(batch) > most - count else batch
            checksum, count = _checksum(part, checksum), count + len(part)
            if len(part) < len(batch):
                return count, checksum, True
        return count, checksum, False

    async def _publish(
        self, producer: TransactionalProducer, where: TopicPartition, marker: Marker
    ) -> int:
        """Write the missing records of a partition; return their number."""
        if marker.whole:
            return 0
        chunks = _chunks(_from(self._done.read(where), marker.records))
        written, chunk = 0, await in_thread(next, chunks, None)
        while chunk is not None:
            # Read one chunk ahead: the last marker says that the partition is complete.
            after = await in_thread(next, chunks, None)
            count = sum(map(len, chunk))
            checksum = await in_thread(_checksum_of, chunk, marker.checksum)
            ends = await producer.send([Outgoing(where, part) for part in chunk])
            marker = Marker(marker.records + count, checksum, ends[-1], whole=after is None)
            # The marker is in the transaction of its records: both are committed, or neither.
            await producer.send([Outgoing(self._markers, self._row(where, marker))])
            await producer.commit({}, _NOBODY)
            written, chunk = written + count, after
            if self._progress is not None:
                self._progress(where, marker.records)
        return written

    def _row(self, where: TopicPartition, marker: Marker) -> Batch:
        key, value = msgspec.json.encode(_Name(self._job, *where)), msgspec.json.encode(marker)
        return Batch([key], [value], [time.time_ns() // 1_000_000])


def _from(batches: Iterator[Batch], first: int) -> Iterator[Batch]:
    """Yield the records from index `first` on, in slices."""
    for batch in batches:
        skipped = min(first, len(batch))
        first -= skipped
        for start in range(skipped, len(batch), _SLICE):
            yield batch.slice(start, min(start + _SLICE, len(batch)))


def _chunks(slices: Iterator[Batch]) -> Iterator[list[Batch]]:
    """Yield groups of slices that fit into one transaction."""
    chunk: list[Batch] = []
    count = size = 0
    for one in slices:
        chunk.append(one)
        count += len(one)
        size += sum(map(len, filter(None, chain(one.keys, one.values))))
        if count >= _AT_ONCE or size >= _AT_ONCE_BYTES:
            yield chunk
            chunk, count, size = [], 0, 0
    if chunk:
        yield chunk


def _checksum(batch: Batch, before: int) -> int:
    """Return a checksum that is independent of batch boundaries."""
    headers: Iterable[Any] = [()] * len(batch) if batch.headers is None else batch.headers
    return crc32(
        b"".join(
            map(_encode, zip(batch.keys, batch.values, batch.timestamps, headers, strict=True))
        ),
        before,
    )


def _checksum_of(batches: Iterable[Batch], before: int) -> int:
    for batch in batches:
        before = _checksum(batch, before)
    return before
