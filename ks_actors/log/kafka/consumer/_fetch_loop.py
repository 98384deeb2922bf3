"""The loop of fetch requests to brokers."""

from __future__ import annotations

import asyncio
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors._errors import LogClosed, LogCorrupted, LogError
from ks_actors.lifecycle import component_log
from ks_actors.log.kafka.client import Unavailable
from ks_actors.log.kafka.consumer._fetch_broker import FetchBroker
from ks_actors.log.kafka.consumer._fetch_errors import FetchErrors, unexpected
from ks_actors.log.kafka.consumer._fetch_session import INVALID_EPOCH, NOT_FOUND
from ks_actors.log.kafka.consumer._partition_reader import FetchState
from ks_actors.log.kafka.wire import RETRIABLE, UNKNOWN_SERVER_ERROR, Chunk, error_of, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from ks_actors.log._request_figures import RequestFigures
    from ks_actors.log.kafka.client import KafkaClient
    from ks_actors.log.kafka.consumer._fetch_broker import BrokerTurn
    from ks_actors.log.kafka.consumer._partition_reader import Budget, PartitionReader
    from ks_actors.log.kafka.wire import FetchResponse
    from ks_actors.records import TopicPartition

# The longest wait of `close` for brokers (ms).
_END_SESSION_MS: Final = 500
_numbers = count(1)
_log = component_log(__name__)


@final
class FetchLoop:
    """Keep fetch requests open for all partitions that want more records.

    Callers report every change of a partition with `change`; unchanged partitions are not checked
    again. A wanted partition is in a request after at most `linger_ms` plus 20 ms plus one broker
    round trip, regardless of other partitions; up to 500 ms while a connection gives no answer.
    """

    def __init__(
        self,
        client: KafkaClient,
        sources: Mapping[TopicPartition, PartitionReader],
        *,
        budget: Budget,
        client_id: str,
        committed: bool,
        figures: RequestFigures,
    ) -> None:
        self._client: KafkaClient = client
        self._sources: Mapping[TopicPartition, PartitionReader] = sources
        self._client_id: str = client_id
        self._figures = figures
        self._committed: bool = committed
        self._budget: Budget = budget
        self._room: bool = True
        self._linger_s: float = client.options.linger_ms / 1000
        # Connections of its own: brokers answer in order, and other fetchers' requests may wait for
        # records.
        number = next(_numbers)
        self._channels: tuple[str, str] = (f"fetch-{number}-0", f"fetch-{number}-1")
        for channel in self._channels:
            client.name_channel(channel, client_id)
        self._errors: FetchErrors = FetchErrors(client, sources, self, client_id=client_id)
        self._unwatch: tuple[Callable[[], None], ...] = (
            client.watch_leaders(self.change_all),
            client.watch_late(self._note_late),
        )
        self._brokers: dict[int, FetchBroker] = {}
        # The brokers of the wanted partitions, and the partitions whose broker may be outdated.
        self._nodes: dict[TopicPartition, int] = {}
        self._changed: set[TopicPartition] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pumping: asyncio.Handle | None = None
        self._served = count(1)
        self._stopped = False

    def change(self, source: PartitionReader) -> None:
        """Check soon whether to fetch a partition, and from which broker.

        One check covers all changes before it.
        """
        self._changed.add(source.partition)
        if self._pumping is None:
            self._pump_soon()

    def change_all(self) -> None:
        """Check all partitions soon."""
        self._changed.update(self._sources)
        self._pump_soon()

    def describe(self, partition: TopicPartition) -> str:
        """Describe a partition's fetch requests in one line, for the report of a stall."""
        node = self._nodes.get(partition)
        changed = ", to be checked" if partition in self._changed else ""
        leader = self._client.leader(partition)
        if node is None:
            return f"in no request{changed}, leader {leader}"
        broker, now = self._brokers[node], asyncio.get_running_loop().time()
        lines = ", ".join(
            f"{'open' if line.awaited else 'late' if line.out else 'free'} request with offset "
            f"{line.session.sent_offsets.get(partition)}"
            for line in broker.lines
        )
        return (
            f"asked of broker {node}{changed}, leader {leader}, {lines}, next request in "
            f"{max(0.0, broker.not_before - now):.3f} s at the earliest, timer "
            f"{broker.timer is not None}"
        )

    def _pump_soon(self) -> None:
        if self._pumping is None and not self._stopped:
            # Deferred: an assignment changes thousands of partitions in one turn of the loop.
            self._pumping = asyncio.get_running_loop().call_soon(self._pump)

    def stop(self) -> None:
        """Stop, without waiting for the tasks."""
        self._stopped = True
        for unwatch in self._unwatch:
            unwatch()
        if self._pumping is not None:
            self._pumping.cancel()
        for task in self._tasks:
            task.cancel()
        for broker in self._brokers.values():
            if broker.timer is not None:
                broker.timer.cancel()
            for line in broker.lines:
                # A broker may hold the request for as long as `wait_ms`; closing must not wait that
                # long.
                self._client.disconnect(line.channel)
        for channel in self._channels:
            self._client.name_channel(channel, None)

    async def close(self) -> None:
        """Stop, wait until all tasks have ended, and end the sessions on the brokers."""
        self.stop()
        if self._tasks:
            await asyncio.wait(self._tasks)
        # A broker that does not answer keeps its sessions until it drops them.
        brokers = [broker for broker in self._brokers.values() if not broker.backoff]
        channel = self._channels[0]
        # Any connection can end a session, but brokers should see this client's name.
        self._client.name_channel(channel, self._client_id)
        try:
            await asyncio.gather(*(self._end_sessions(broker, channel) for broker in brokers))
        finally:
            self._client.disconnect(channel)
            self._client.name_channel(channel, None)

    async def _end_sessions(self, broker: FetchBroker, channel: str) -> None:
        for line in broker.lines:
            request = line.session.end(committed=self._committed)
            if request is None:
                continue
            try:
                await self._client.send(
                    broker.node, request, channel=channel, timeout_ms=_END_SESSION_MS
                )
            except LogError as error:
                # The failure does no harm: the broker drops unused sessions after a while.
                _log.debug(
                    "%s: broker %s keeps a fetch session: %s", self._client_id, broker.node, error
                )
                return

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that ends with the fetcher."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self._client_id} fetches")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- partitions and their brokers -------------------------------------------------------------

    def _pump(self) -> None:
        self._pumping = None
        if self._budget.room is not self._room:
            self._room = self._budget.room
            # Whether a partition is wanted depends on the budget, so check all partitions when the
            # budget's room has changed.
            self._changed.update(self._sources)
        for partition in self._changed:
            self._place(partition)
        self._changed.clear()
        for broker in self._brokers.values():
            self._serve(broker)

    def _note_late(self) -> None:
        """Fetch on the other connection of a broker while an answer on the first is late."""
        for broker in self._brokers.values():
            for line in broker.lines:
                line.late = line.out and self._client.late(broker.node, line.channel)
        self._pump_soon()

    def _place(self, partition: TopicPartition) -> None:
        """Assign a partition to the broker that leads it, if it is wanted."""
        source = self._sources.get(partition)
        node: int | None = None
        if source is not None and source.wanted:
            node = self._client.leader(partition)
            if node is None:
                # The leader is being elected, or the metadata are old: the refresh checks again.
                self._errors.refresh()
        before = self._nodes.get(partition)
        if before is not None and before != node:
            # Remove the partition before it is added elsewhere: it must not be fetched from two
            # brokers at the same time.
            del self._nodes[partition]
            self._brokers[before].change(partition, None)
        if node is not None:
            self._nodes[partition] = node
            broker = self._brokers.get(node)
            if broker is None:
                broker = self._brokers[node] = FetchBroker(
                    # Two connections: a broker answers in order, so a request that waits for
                    # records would delay the partitions that are not part of that request.
                    node,
                    self._channels,
                )
            broker.change(partition, source)

    def _serve(self, broker: FetchBroker) -> None:
        """Send the next request to a broker, or set a timer for it."""
        line = broker.free_line()
        if line is None:
            return
        loop = asyncio.get_running_loop()
        now, due = loop.time(), broker.due(self._linger_s)
        if due <= now:
            wait_ms = broker.begin(line, now)
            self.begin(self._request(broker, line, wait_ms))
        elif broker.timer is None or broker.timer_due > due:
            if broker.timer is not None:
                broker.timer.cancel()
            # Store the time: in uvloop, the handle of an almost due timer does not know its time.
            broker.timer, broker.timer_due = loop.call_at(due, self._come_due, broker), due

    def _come_due(self, broker: FetchBroker) -> None:
        broker.timer = None
        self._serve(broker)

    # --- a request --------------------------------------------------------------------------------

    async def _request(self, broker: FetchBroker, line: BrokerTurn, wait_ms: int) -> None:
        options = self._client.options
        # Even with the budget used up, leave room for one fetch of a partition with an empty
        # buffer.
        most = max(options.fetch_max_bytes - self._budget.used, options.max_partition_fetch_bytes)
        request = line.session.request(options, wait_ms, most, committed=self._committed)
        try:
            # The broker may wait that long for records before it answers.
            timeout_ms = options.request_timeout_ms + wait_ms
            began = perf_counter()
            response = await self._client.send(
                broker.node, request, channel=line.channel, timeout_ms=timeout_ms
            )
            line.out = False
            self._figures.times.add((perf_counter() - began) * 1000)
            self._take(broker, line, response)
        except Unavailable as error:
            line.out = False
            # The broker may or may not have the request, so the next request has all partitions.
            line.session.lose()
            self._unreachable(broker, error)
        except LogClosed:
            return
        except Exception as error:  # noqa: BLE001 - the waiting reader gets any error
            line.out = False
            for source in self._asked(line):
                source.fail(
                    error if isinstance(error, LogError) else unexpected(source.partition, error)
                )
            line.session.lose()
        self._pump_soon()

    def _current(self, line: BrokerTurn, partition: TopicPartition) -> PartitionReader | None:
        """Return the partition if it still waits for the response to a connection's last request.

        Raises KeyError for a partition that is not in the request.
        """
        offset = line.session.sent_offsets[partition]
        source = self._sources.get(partition)
        if (
            source is None
            # The partition was moved: records from the old offset must not get into its buffer.
            or source.ahead != offset
            or source.state in (FetchState.FAILED, FetchState.LOOKING)
            or source.full
        ):
            return None
        return source

    def _asked(self, line: BrokerTurn) -> list[PartitionReader]:
        """Return the partitions that still wait for the response to a connection's last request."""
        return [
            source
            for partition in line.session.sent_offsets
            if (source := self._current(line, partition)) is not None
        ]

    def _unreachable(self, broker: FetchBroker, error: Unavailable) -> None:
        if not broker.backoff:
            _log.warning(
                "%s: fetching from broker %s fails; the client retries: %s",
                self._client_id,
                broker.node,
                error,
            )
        self._rest(broker, away=error.away)
        self._errors.refresh()

    def _rest(self, broker: FetchBroker, *, away: bool = False, refused: int = 0) -> None:
        if refused:
            self._client.outages.refused(
                broker.node, f"broker {broker.node} answered {name_of(refused)}"
            )
        broker.not_before = asyncio.get_running_loop().time() + broker.backoff.pause_s(
            self._client.options, away=away
        )

    def _take(self, broker: FetchBroker, line: BrokerTurn, response: FetchResponse) -> None:
        if response.throttle_time_ms > 0:
            broker.not_before = asyncio.get_running_loop().time() + response.throttle_time_ms / 1000
        if response.error_code:
            self._refused(broker, line, response.error_code)
            return
        if broker.backoff:
            _log.info("%s: broker %s answers again", self._client_id, broker.node)
            broker.backoff.end()
            self._client.outages.served(broker.node)
        size = found = 0
        for topic, partitions in response.topics:
            for number, code, high, stable, _, aborted, _, diverging, raw in partitions:
                # A plain tuple finds an equal named tuple, and costs less.
                source = self._current(line, (topic, number))  # type: ignore[arg-type]
                if source is None:
                    continue
                if code:
                    self._errors.refused(source, code)
                    continue
                if diverging is not None:
                    self._errors.diverged(source, *diverging)
                    continue
                if source.backoff:
                    self._client.outages.served(source.partition)
                source.answered()
                if raw:
                    found += 1
                    size += len(raw)
                    # Without a session the partition comes last in the next request.
                    source.served = next(self._served)
                    self._add(
                        source,
                        raw,
                        # With read_committed the end is the last stable offset: records after it
                        # are not readable yet.
                        stable if self._committed else high,
                        (aborted or ()) if self._committed else None,
                    )
        # Only now, after all partitions: after an error above, the session is dropped instead.
        line.session.answered(response.session_id)
        self._figures.bytes += size
        broker.answered(size, found)

    def _refused(self, broker: FetchBroker, line: BrokerTurn, code: int) -> None:
        """Handle the error code of a whole response."""
        if code == UNKNOWN_SERVER_ERROR:
            if not broker.backoff:
                _log.warning(
                    "%s: fetching from broker %s fails; the client retries: Kafka answered %s; "
                    "look into the broker's own log for the reason",
                    self._client_id,
                    broker.node,
                    name_of(code),
                )
            self._rest(broker, refused=code)
        elif code not in RETRIABLE:
            for source in self._asked(line):
                source.fail(error_of(code, f"fetching {source.partition} failed"))
        elif line.session.full or code not in {NOT_FOUND, INVALID_EPOCH}:
            # A lost session is normal and is renewed at once. But a full request requires no
            # session: if it is refused, do not repeat it in a tight loop.
            self._rest(broker, refused=code)
        # The broker may have dropped the session, after a restart or to make room for others.
        line.session.lose()

    def _add(
        self,
        source: PartitionReader,
        raw: bytes,
        end_offset: int,
        aborted: Sequence[tuple[int, int]] | None,
    ) -> None:
        try:
            limit = self._client.options.max_decompressed_bytes
            chunk = Chunk(source.partition, raw, end_offset, aborted, apart=True, limit=limit)
        except LogCorrupted as error:
            source.fail(error)
        else:
            # Add the chunk before the next request, so that it can include this partition.
            source.add(chunk)
