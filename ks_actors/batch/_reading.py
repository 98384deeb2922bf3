"""Blocking reads of log ranges, for Spark tasks and threads without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, final
from urllib.parse import unquote, urlsplit

import msgspec

from ks_actors._errors import (
    ConfigError,
    LogClosed,
    LogError,
    LogTimeout,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from ks_actors.batch._loop_calls import GivenUp, LoopCalls
from ks_actors.config import SCHEME, kafka_options
from ks_actors.log import IsolationLevel, kafka_log
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Iterable, Sequence

    from ks_actors.config import StreamsConfig
    from ks_actors.log import Fetched, Fetcher, Log
    from ks_actors.records import Batch

T = TypeVar("T")
_AT_ONCE = 20_000
_WAIT_MS = 1_000
_SILENCE_SECONDS = 60.0
_OPENINGS = 3
_CLOSE_S = 2.0


class LogAddress(msgspec.Struct, frozen=True):
    """Address of a log that other processes can reach: its URL and, for Kafka, login options.

    The address is sent to Spark tasks.
    """

    url: str
    options: Mapping[str, Any] = {}

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return the URL and only the names of the options.

        Options may hold passwords, and printed values end up in logs.
        """
        return [("url", self.url), ("options", list(self.options))]

    def __repr__(self) -> str:
        return f"LogAddress(url={self.url!r}, options={list(self.options)!r})"

    def open(self) -> Log:
        """Return the log, read-only and not started. Raises ConfigError for a log in memory."""
        if self.url.startswith(SCHEME):
            return kafka_log(
                self.url.removeprefix(SCHEME), **{"client_id": "ks-actors-batch", **self.options}
            )
        parts = urlsplit(self.url)
        if parts.scheme != "embedded" or parts.netloc or not parts.path:
            raise ConfigError(
                f"{self.url!r} is not a log that another process can read: use embedded:///path or "
                "kafka://host:port"
            )
        return EmbeddedLog(Path(unquote(parts.path)), read_only=True)


def address_of(config: StreamsConfig) -> LogAddress:
    """Return the address of an app's log."""
    return LogAddress(config.log, kafka_options(config) if config.log.startswith(SCHEME) else {})


class LogRange(msgspec.Struct, frozen=True):
    """The offsets of a partition from `start` up to, but not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    def split(self, most: int) -> list[LogRange]:
        """Split the range into pieces of at most `most` offsets."""
        return [
            LogRange(self.topic, self.partition, at, min(at + most, self.end))
            for at in range(self.start, self.end, most)
        ]


@final
class LogReader:
    """A log on its own event loop, in a thread, with blocking calls.

    Use it as `with LogReader(address) as reader`. When the block ends, reads in other threads raise
    LogClosed.
    """

    def __init__(self, address: LogAddress) -> None:
        self._address = address
        self._loop = asyncio.new_event_loop()
        self._calls = LoopCalls(self._loop)
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="ks-batch-log", daemon=True
        )
        self._log: Log | None = None
        # While one thread is in `open`, another thread may cancel it and call `close`.
        self._lock = threading.Lock()

    def __enter__(self) -> LogReader:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Start the loop's thread, and open the log. Raises GivenUp, and the errors of `start`."""
        with self._lock:
            self._thread.start()
            try:
                self._run(self._start())
            except BaseException:
                self._end()
                raise

    def close(self) -> None:
        """Cancel all reads, close the log, and end the thread. Does nothing when called again."""
        self.give_up()
        with self._lock:
            if self._loop.is_closed():
                return
            try:
                if self._thread.is_alive():
                    asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
            finally:
                self._end()

    def give_up(self) -> None:
        """Make reads, also those under way in other threads, raise LogClosed."""
        self._calls.end()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._calls.run(work)

    def _end(self) -> None:
        self.give_up()
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        # The loop's thread has ended, so this thread may run the loop, to end tasks and the
        # executor's threads, and to close a log that was opened while its `open` was cancelled.
        self._loop.run_until_complete(_end_tasks())
        self._loop.run_until_complete(self._stop())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _start(self) -> None:
        log = self._address.open()
        try:
            await log.start()
        except BaseException:
            await log.close()
            raise
        self._log = log

    async def _stop(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            await log.close()

    def _reopen(self, log: Log) -> None:
        """Close the log and open it again, unless another thread has done so meanwhile."""
        with self._lock:
            if self._log is log:
                self._run(self._stop())
                self._run(self._start())

    @property
    def _opened(self) -> Log:
        with self._lock:
            if self._log is None:
                raise LogClosed(f"{self._address.url} is closed")
            return self._log

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the partition count of each topic.

        Raises UnknownTopicOrPartition, with the names of all missing topics.
        """
        return self._run(partition_counts(self._opened, topics))

    def ranges(self, topics: Iterable[str], bounds: Bounds) -> list[LogRange]:
        """Return the ranges of all partitions of the topics."""
        return self._run(plan_ranges(self._opened, topics, bounds))

    def read(self, what: LogRange) -> Generator[Batch, None, None]:
        """Yield the existing records of a range, in batches in offset order.

        If the log was cleaned during the read, reopen it, up to three times. Raises
        OffsetOutOfRange for deleted records, and LogTimeout.
        """
        at, left = what.start, _OPENINGS
        while at < what.end:
            log = self._opened
            try:
                for batch, behind in _read_from(log, self._calls, what, at):
                    at = behind
                    if len(batch):
                        yield batch
            # Deleted records do not come back when the log is opened again.
            except (OffsetOutOfRange, GivenUp):
                raise
            except LogError:
                if log is not self._opened:
                    # Another read of this reader has opened the log again, and closed this fetcher.
                    continue
                left -= 1
                # Kafka's client has already retried; only a log in files can change while it is
                # read.
                if not left or self._address.url.startswith(SCHEME):
                    raise
                self._reopen(log)


@final
class SharedLog:
    """A log on another thread's event loop, with blocking calls.

    Never call `read` from the loop's own thread.
    """

    def __init__(self, log: Log, loop: asyncio.AbstractEventLoop) -> None:
        self._log = log
        self._calls = LoopCalls(loop)

    def give_up(self) -> None:
        """Make reads, also those under way, raise LogClosed."""
        self._calls.end()

    def ranges(self, topics: Iterable[str], bounds: Bounds) -> list[LogRange]:
        """Return the ranges of all partitions of the topics."""
        return self._calls.run(plan_ranges(self._log, topics, bounds))

    def read(self, what: LogRange) -> Generator[Batch, None, None]:
        """Yield the records of a range, in batches in offset order.

        Raises OffsetOutOfRange for deleted records, and LogTimeout.
        """
        for batch, _ in _read_from(self._log, self._calls, what, what.start):
            if len(batch):
                yield batch


def _read_from(
    log: Log, calls: LoopCalls, what: LogRange, at: int
) -> Generator[tuple[Batch, int], None, None]:
    where = TopicPartition(what.topic, what.partition)
    made: list[Fetcher] = []
    try:
        # A cancelled call may still make the fetcher: `close` finds it in the list.
        fetcher = calls.run(_fetcher(log, where, at, made))
        silent = 0.0
        while at < what.end:
            fetched = calls.run(_fetch(fetcher, what.end - at))
            for one in fetched:
                at = min(one.next_offset, what.end)
                yield _until(one.batch, what.end), at
            silent = 0.0 if fetched else silent + _WAIT_MS / 1000
            if silent >= _SILENCE_SECONDS:
                raise LogTimeout(
                    f"{where} gave no records at offset {at} for {silent:g} s, before the end of "
                    f"the range at {what.end}"
                )
    finally:
        calls.finish(_close(made))


async def _end_tasks() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        # A cancelled start closes the log that it has opened.
        _, left = await asyncio.wait(left, timeout=_CLOSE_S)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def _fetcher(log: Log, where: TopicPartition, at: int, made: list[Fetcher]) -> Fetcher:
    # A coroutine, although nothing is awaited: a fetcher must be made on the log's event loop.
    fetcher = log.fetcher(client_id="ks-actors-batch", isolation=IsolationLevel.READ_COMMITTED)
    made.append(fetcher)
    fetcher.assign({where: at})
    return fetcher


async def _close(made: list[Fetcher]) -> None:
    for fetcher in made:
        await fetcher.close()


async def _fetch(fetcher: Fetcher, most: int) -> Sequence[Fetched]:
    return await fetcher.fetch(max_wait_ms=_WAIT_MS, max_records=max(1, min(_AT_ONCE, most)))


def _until(batch: Batch, end: int) -> Batch:
    if not len(batch) or batch.offsets[-1] < end:
        return batch
    # With missing offsets, the requested number of records may reach beyond the range.
    return batch.select([offset < end for offset in batch.offsets])


class Bounds(msgspec.Struct, frozen=True):
    """Bounds of the history of each partition: by offset, else by time (ms), else everything.

    `until_ms` excludes the first record at or after that time, and all later offsets. Ends never
    pass the end of the committed records.
    """

    from_ms: int | None = None
    until_ms: int | None = None
    starts: Mapping[str, Mapping[int, int]] = {}
    ends: Mapping[str, Mapping[int, int]] = {}


async def partition_counts(log: Log, topics: Iterable[str]) -> dict[str, int]:
    """Return the partition count of each topic.

    Raises UnknownTopicOrPartition, with the names of all missing topics.
    """
    wanted = list(topics)
    found = await log.describe_topics(wanted)
    missing = [name for name in wanted if name not in found]
    if missing:
        raise UnknownTopicOrPartition(f"topics {', '.join(missing)} do not exist")
    return {name: found[name].partitions for name in wanted}


async def plan_ranges(log: Log, topics: Iterable[str], bounds: Bounds) -> list[LogRange]:
    """Return the ranges of all partitions of the topics, including empty ranges.

    Raises OffsetOutOfRange for offsets that do not exist.
    """
    counts = await partition_counts(log, topics)
    partitions = [
        TopicPartition(name, number) for name, count in counts.items() for number in range(count)
    ]
    begins = await log.begin_offsets(partitions)
    ends = await log.end_offsets(partitions, IsolationLevel.READ_COMMITTED)
    first = (
        {}
        if bounds.from_ms is None
        else await log.offsets_for_times(dict.fromkeys(partitions, bounds.from_ms))
    )
    last = (
        {}
        if bounds.until_ms is None
        else await log.offsets_for_times(dict.fromkeys(partitions, bounds.until_ms))
    )
    ranges = []
    for where in partitions:
        topic, number = where
        # Records beyond the end are uncommitted, or arrived after the end was read.
        start = bounds.starts.get(topic, {}).get(
            number, min(first.get(where, begins[where]), ends[where])
        )
        end = bounds.ends.get(topic, {}).get(number, min(last.get(where, ends[where]), ends[where]))
        for offset in (start, end):
            if not begins[where] <= offset <= ends[where]:
                raise OffsetOutOfRange(where, offset, begins[where], ends[where])
        # The end may lie before the start if both come from times: then the range is empty.
        ranges.append(LogRange(topic, number, start, max(start, end)))
    return ranges


def check_read(
    name: str,
    offsets: Mapping[str, Mapping[int, int]],
    ranges: Iterable[LogRange],
    *,
    by: str,
) -> None:
    """Raise ConfigError for offsets of partitions that are not read, which would be ignored.

    `name` is the option that gives the offsets, `by` names the reader.
    """
    partitions: dict[str, set[int]] = {}
    for one in ranges:
        partitions.setdefault(one.topic, set()).add(one.partition)
    for topic, numbers in offsets.items():
        if topic not in partitions:
            raise ConfigError(
                f"{name}: {by} reads no topic {topic!r}; it reads {', '.join(sorted(partitions))}"
            )
        if strange := sorted(set(numbers) - partitions[topic]):
            raise ConfigError(
                f"{name}: {topic} has no partition {strange[0]}; it has {len(partitions[topic])}, "
                "counted from 0"
            )
