"""Fetch requests to brokers."""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors._errors import LogClosed, LogCorrupted, LogError, LogTimeout, OffsetOutOfRange, UnknownTopicOrPartition
from ks_actors.log.kafka._codes import OFFSET_OUT_OF_RANGE, RETRIABLE, STALE_METADATA, error_of
from ks_actors.log.kafka._connections import Unavailable
from ks_actors.log.kafka._failures import Failures
from ks_actors.log.kafka._records import Chunk
from ks_actors.log.kafka._requests import FetchRequest, OffsetRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from ks_actors.log._types import TopicPartition
    from ks_actors.log.kafka._client import KafkaClient
    from ks_actors.log.kafka._source import Source

# How long a broker waits for records; and how long while another request of ours waits for other partitions already.
_LONG_MS: Final = 500
_SHORT_MS: Final = 50
_LANES: Final = (0, 1)
_UNKNOWN: Final = frozenset({3, 100})
_CORRUPT: Final = 2
_EARLIEST: Final = -2
_LATEST: Final = -1
_numbers = count(1)
_log = logging.getLogger("ks_actors")


@final
class _Asked:
    """A request under way; `sources` are as they were when it was made."""

    __slots__ = ("lane", "short", "sources")

    def __init__(self, lane: int, sources: Iterable[Source], *, short: bool) -> None:
        self.lane: int = lane
        self.short: bool = short
        self.sources: dict[tuple[str, int], tuple[Source, int]] = {source.partition: (source, source.era) for source in sources}

    def current(self) -> list[Source]:
        """Return the sources for which its answer counts."""
        return [source for source, era in self.sources.values() if source.era == era]


@final
class _Broker:
    """What is under way at a broker."""

    __slots__ = ("asked", "failures", "not_before", "turn")

    def __init__(self) -> None:
        self.asked: list[_Asked] = []
        self.failures: Failures = Failures()
        self.not_before: float = 0.0
        self.turn: int = 0


@final
class Fetching:
    """Keep requests under way for all sources that want more, as they come to want it.

    Per broker there are two lanes. A partition that was idle when a request went out and one that was paused, say, would have to wait for each other
    else: what comes to be wanted while a request waits goes out by the other lane, with a short wait, and idle partitions join each other again.
    """

    def __init__(
        self, client: KafkaClient, sources: Mapping[TopicPartition, Source], news: Callable[[Source], None], *, client_id: str, committed: bool
    ) -> None:
        self._client: KafkaClient = client
        self._sources: Mapping[TopicPartition, Source] = sources
        self._on_news: Callable[[Source], None] = news
        self._who: str = client_id
        self._committed: bool = committed
        self._channel: str = f"fetch-{next(_numbers)}"
        self._brokers: dict[int, _Broker] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._pumping: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def pump(self) -> None:
        """Ask for what is wanted, soon: once for all that has happened by then."""
        if self._pumping is None and not self._stopped:
            self._pumping = asyncio.get_running_loop().call_soon(self._pump)

    def stop(self) -> None:
        """End, without waiting for it."""
        self._stopped = True
        for handle in (self._pumping, self._timer):
            if handle is not None:
                handle.cancel()
        for task in self._tasks:
            task.cancel()
        for lane in _LANES:
            self._client.disconnect(f"{self._channel}-{lane}")

    async def close(self) -> None:
        """End, and wait until it has ended."""
        self.stop()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _pump(self) -> None:
        self._pumping = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        by_broker: dict[int, list[Source]] = {}
        room = self._client.options.fetch_max_bytes
        later: list[float] = []
        leaderless = False
        for source in self._sources.values():
            room -= source.buffered
            if not source.wanted:
                continue
            if source.not_before > now:
                later.append(source.not_before)
                continue
            node = self._client.leader(source.partition)
            if node is None:
                leaderless = True
            else:
                by_broker.setdefault(node, []).append(source)
        if leaderless:
            self._refresh()
        if room > 0:
            for node, sources in by_broker.items():
                broker = self._brokers.setdefault(node, _Broker())
                if broker.not_before > now:
                    later.append(broker.not_before)
                else:
                    self._ask(node, broker, sources, room)
        if later:
            self._timer = loop.call_at(min(later), self._pump)

    def _ask(self, node: int, broker: _Broker, sources: list[Source], room: int) -> None:
        others = broker.asked
        if len(others) == len(_LANES):
            return
        if others and others[0].short:
            # It is back soon: then all that are idle wait in one request.
            sources = [source for source in sources if not source.idle]
            if not sources:
                return
        # Everybody is the first one at some time: only that one gets a batch that is larger than max_partition_fetch_bytes.
        broker.turn += 1
        begin = broker.turn % len(sources)
        asked = _Asked(1 - others[0].lane if others else 0, sources[begin:] + sources[:begin], short=bool(others))
        others.append(asked)
        for source in sources:
            source.asked = True
        self._begin(self._request(node, broker, asked, room))

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=f"{self._who} fetches")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _request(self, node: int, broker: _Broker, asked: _Asked, room: int) -> None:
        options = self._client.options
        wait_ms = _SHORT_MS if asked.short else _LONG_MS
        topics: dict[str, list[tuple[int, int, int]]] = {}
        for source, _ in asked.sources.values():
            topic, number = source.partition
            topics.setdefault(topic, []).append((number, source.ahead, options.max_partition_fetch_bytes))
        request = FetchRequest(wait_ms, 1, room, int(self._committed), list(topics.items()))
        try:
            response = await self._client.send(
                node, request, channel=f"{self._channel}-{asked.lane}", timeout_ms=options.request_timeout_ms + wait_ms
            )
            self._returned(broker, asked)
            self._take(node, broker, asked, response)
        except Unavailable as error:
            self._returned(broker, asked)
            self._unreachable(node, broker, error)
        except LogClosed:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits for records has to hear of it
            self._returned(broker, asked)
            for source in asked.current():
                self._fail(source, error if isinstance(error, LogError) else _unexpected(source.partition, error))
        self.pump()

    def _returned(self, broker: _Broker, asked: _Asked) -> None:
        if asked in broker.asked:
            broker.asked.remove(asked)
        for source in asked.current():
            source.asked = False

    def _unreachable(self, node: int, broker: _Broker, error: Unavailable) -> None:
        if not broker.failures:
            _log.warning("%s: fetching from broker %s is not possible, and tried again until it is: %s", self._who, node, error)
        broker.not_before = asyncio.get_running_loop().time() + broker.failures.pause_s(self._client.options, away=error.away)
        self._refresh()

    def _take(self, node: int, broker: _Broker, asked: _Asked, response: Any) -> None:
        if broker.failures:
            _log.info("%s: broker %s answers again", self._who, node)
            broker.failures.end()
        if response.throttle_time_ms > 0:
            broker.not_before = asyncio.get_running_loop().time() + response.throttle_time_ms / 1000
        for topic, partitions in response.topics:
            for number, code, high, stable, _, aborted, _, raw in partitions:
                source, era = asked.sources[topic, number]
                if source.era != era:
                    continue
                if code:
                    self._refused(source, code)
                    continue
                source.unknown_since = None
                source.failures.end()
                if not raw:
                    source.idle = True
                elif self._committed:
                    self._add(source, raw, stable, aborted or ())
                else:
                    self._add(source, raw, high, None)

    def _add(self, source: Source, raw: bytes, end_offset: int, aborted: Sequence[tuple[int, int]] | None) -> None:
        try:
            chunk = Chunk(source.partition, raw, end_offset, aborted)
        except LogCorrupted as error:
            self._fail(source, error)
        else:
            if source.add(chunk):
                self._on_news(source)

    # --- what goes wrong --------------------------------------------------------------------------------------------------

    def _fail(self, source: Source, error: Exception) -> None:
        source.error = error
        self._on_news(source)

    def _refused(self, source: Source, code: int) -> None:
        if code == OFFSET_OUT_OF_RANGE:
            source.asked = True
            self._begin(self._find_range(source, source.era))
        elif code in _UNKNOWN:
            self._unknown(source)
            self._refresh()
        elif code == _CORRUPT:
            self._fail(source, LogCorrupted(f"the broker cannot read {source.partition} at offset {source.ahead}: what it has stored is damaged"))
        elif code in RETRIABLE:
            self._hold(source)
            if code in STALE_METADATA:
                self._refresh()
        else:
            self._fail(source, error_of(code, f"{source.partition} cannot be fetched"))

    def _hold(self, source: Source, *, away: bool = False) -> None:
        source.not_before = asyncio.get_running_loop().time() + source.failures.pause_s(self._client.options, away=away)

    def _unknown(self, source: Source) -> None:
        """Wait for the partition a little: a topic that was just created is not known to all brokers at once."""
        now = asyncio.get_running_loop().time()
        if source.unknown_since is None:
            source.unknown_since = now
        if now - source.unknown_since >= self._client.options.missing_topic_wait_ms / 1000:
            source.unknown_since = None
            self._fail(source, UnknownTopicOrPartition(f"there is no {source.partition} to fetch from: it was deleted, or never created"))
        else:
            self._hold(source)

    def _refresh(self) -> None:
        if self._refreshing is None and not self._stopped:
            self._refreshing = self._begin(self._look_up())

    async def _look_up(self) -> None:
        """Find out who leads now, and which partitions there are."""
        try:
            await self._client.refresh({partition.topic for partition in self._sources})
        except LogClosed:
            return
        except Unavailable as error:
            self._refreshing = None
            for source in self._leaderless():
                self._hold(source, away=error.away)
            _log.debug("%s: no broker tells who leads: %s", self._who, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits for records has to hear of it
            self._refreshing = None
            for source in self._leaderless():
                self._fail(source, error if isinstance(error, LogError) else _unexpected(source.partition, error))
        else:
            self._refreshing = None
            for source in self._leaderless():
                reason = self._client.why_no_leader(source.partition)
                if isinstance(reason, UnknownTopicOrPartition):
                    self._unknown(source)
                elif isinstance(reason, Unavailable):
                    self._hold(source)
                else:
                    self._fail(source, reason)
        self.pump()

    def _leaderless(self) -> list[Source]:
        return [source for source in self._sources.values() if source.wanted and self._client.leader(source.partition) is None]

    async def _find_range(self, source: Source, era: int) -> None:
        """Say which offsets there are, when the one that was asked for is none of them."""
        error: Exception | None
        try:
            begin = await self._find_offset(source.partition, _EARLIEST)
            end = await self._find_offset(source.partition, _LATEST)
            # A leader that has just taken over may not have known its end yet.
            error = None if begin <= source.ahead <= end else OffsetOutOfRange(source.partition, source.ahead, begin, end)
        except LogClosed:
            return
        except (LogTimeout, UnknownTopicOrPartition):
            error = None
        except Exception as failed:  # noqa: BLE001 - whatever it is, who waits for records has to hear of it
            error = failed if isinstance(failed, LogError) else _unexpected(source.partition, failed)
        if source.era == era:
            source.asked = False
            if error is None:
                self._hold(source)
            else:
                self._fail(source, error)
            self.pump()

    async def _find_offset(self, partition: TopicPartition, which: int) -> int:
        request = OffsetRequest(-1, 0, [(partition.topic, [(partition.partition, which)])])
        response = await self._client.send_to_leader(partition, request, _offset_codes)
        ((_, ((_, code, _, offset, *_),)),) = response.topics
        if code:
            raise error_of(code, f"it was not possible to learn which offsets {partition} has")
        return int(offset)


def _offset_codes(response: Any) -> list[int]:
    return [code for _, partitions in response.topics for _, code, *_ in partitions]


def _unexpected(partition: TopicPartition, error: Exception) -> LogError:
    failed = LogError(f"{partition} cannot be fetched: {type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed
