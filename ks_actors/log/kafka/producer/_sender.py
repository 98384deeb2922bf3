"""Send record batches to brokers in order, each exactly once, a few requests at a time."""

from __future__ import annotations

import asyncio
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors._errors import (
    InvalidRecord,
    LogClosed,
    LogError,
    LogTimeout,
    RecordTooLarge,
    TransactionAborted,
)
from ks_actors.lifecycle import component_log
from ks_actors.log._request_figures import RequestFigures
from ks_actors.log.kafka.client import LEAST_S, PRODUCE, Unavailable
from ks_actors.log.kafka.producer._find_batch import find_written
from ks_actors.log.kafka.producer._outcome import Outcome, join, wait_for
from ks_actors.log.kafka.producer._partition_queue import (
    NOBODY,
    Identity,
    InFlightBatch,
    PartitionQueue,
)
from ks_actors.log.kafka.producer._slow_records import SlowRecords
from ks_actors.log.kafka.wire import (
    DUPLICATE_SEQUENCE_NUMBER,
    FENCED,
    INVALID_TXN_STATE,
    MESSAGE_TOO_LARGE,
    NONE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    RECORD_LIST_TOO_LARGE,
    RETRIABLE,
    STALE_METADATA,
    UNKNOWN_PRODUCER_ID,
    ProduceRequest,
    error_of,
    name_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from ks_actors.log._lease import Lease
    from ks_actors.log.kafka.client import KafkaClient
    from ks_actors.log.kafka.wire import Encoder, RecordBatch
    from ks_actors.records import Batch, TopicPartition

_log = component_log(__name__)
# The most bytes to write before other tasks can run: this takes a few ms.
_REQUEST_BYTES = 1 << 20
_ALL_REPLICAS = -1
# The batch is larger than max.message.bytes, or than a segment.
_TOO_LARGE = (MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE)
# With these codes the batch was written, even when the response has no offset.
_WRITTEN = (NONE, DUPLICATE_SEQUENCE_NUMBER)
# The leader does not know the producer's previous batch, so it has not written this batch.
_FORGOTTEN = (OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID)
# The highest epoch of a producer.
_LAST_EPOCH = 2**15 - 1
# The interval of checks for an extended lease.
_LEASE_SECONDS = 0.02
# The longest wait (s) for the end of a lease before it is looked at again.
_LONGEST_WAIT_S = 60.0
# The most reasons from a broker in an error's text.
_REASONS: Final = 3


class EpochRefused(LogError):
    """A broker refused a producer's epoch, or does not know its transaction.

    The producer has to find out the cause: a timeout, or a newer producer.
    """


@final
class Sender:
    """Send the batches of partition queues.

    Each batch ends as written, refused, or timed out. If a batch with a sequence number is finally
    refused or times out, it leaves a gap, and no batch can follow. Without transactions the queue
    then waits for its other sent batches, and continues with the next epoch, as Kafka's own
    producer does (KIP-360); when the epochs are used up, `renew` gives a new producer id. In a
    transaction the gap voids the whole transaction: later batches of that queue fail, and the
    caller aborts the transaction and calls `reset` with a new identity.
    """

    def __init__(
        self, client: KafkaClient, encoder: Encoder, *, transactional_id: str | None = None,
        renew: Callable[[], Awaitable[Identity]] | None = None, lease: Lease | None = None,
        figures: RequestFigures | None = None,
    ) -> None:  # fmt: skip
        self._client: KafkaClient = client
        self._encoder: Encoder = encoder
        self._transactional_id: str | None = transactional_id
        self._renew: Callable[[], Awaitable[Identity]] | None = renew
        self._lease: Lease | None = lease
        self._figures = figures or RequestFigures("produce", "")
        self._abandoned: LogError | None = None
        self.identity: Identity = NOBODY
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._waiting: dict[PartitionQueue, None] = {}
        self._slow = SlowRecords()
        self._requests_in_flight: dict[int, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at = 0.0
        self._refreshing = self._renewing = self._closed = False

    @property
    def poisoned(self) -> bool:
        """Whether a gap exists that requires a new identity."""
        return any(queue.poisoned or queue.unresolved() for queue in self._queues.values())

    def put(
        self,
        partition: TopicPartition,
        batches: Sequence[RecordBatch],
        records: Batch,
        deadline: float,
    ) -> list[Outcome]:
        """Queue record batches for a partition, to be written by `deadline`.

        Returns an outcome for each batch: the offset after the batch's last record.
        """
        queue = self._queues.get(partition) or self._queues.setdefault(
            partition, PartitionQueue(partition, self.identity)
        )
        outcomes: list[Outcome] = []
        start = 0
        for batch in batches:
            stop = start + batch.count
            part = records if len(batches) == 1 else records.slice(start, stop)
            outcome = Outcome()
            queue.put(InFlightBatch(batch, part, outcome, deadline, start))
            start = stop
            outcomes.append(outcome)
        # The next `go` sends the batches, together with batches that other calls queue before it.
        self._waiting[queue] = None
        return outcomes

    @property
    def deadline(self) -> float:
        """The time (s, of the loop) by which records that are queued now must be written."""
        return asyncio.get_running_loop().time() + self._client.options.delivery_timeout_ms / 1000

    def go(self) -> None:
        """Send all batches that may be sent at this moment."""
        if self._closed:
            return
        now = asyncio.get_running_loop().time()
        if self._lease is not None and not self._lease.holds():
            self._wait_for_lease(now)
            return
        left = _REQUEST_BYTES
        while left > 0 and (size := self._send_requests(now)):
            left -= size
        # After this many bytes, let other tasks run before the next requests.
        if left <= 0:
            asyncio.get_running_loop().call_soon(self.go)
        if self._lease is not None and any(self._requests_in_flight.values()):
            # No answer need come before the lease ends, and only another `go` notices its end.
            self._wake_in(min(self._lease.left(), _LONGEST_WAIT_S))

    def _wait_for_lease(self, now: float) -> None:
        """Wait for the lease, or until batches time out; call back requests without an answer."""
        self._client.cut(PRODUCE)
        for queue in tuple(self._waiting):
            # Batches still time out, so that callers do not wait forever for an expired lease.
            self._expire(queue, now)
            if not queue.batches:
                self._waiting.pop(queue, None)
        if self._waiting:
            self._wake_in(_LEASE_SECONDS)

    def _send_requests(self, now: float) -> int:
        """Send one request to each broker with queued batches; return the bytes sent.

        A batch that has to wait is sent later: every answer, and the timer, calls `go` again.
        """
        requests: dict[int, list[PartitionQueue]] = {}
        sizes: dict[int, int] = {}
        due = inf
        most = self._client.options.max_in_flight
        for queue in tuple(self._waiting):
            if queue.batches and (queue.abandoned or queue.batches[0].deadline <= now):
                self._expire(queue, now)
            if not queue.batches:
                self._waiting.pop(queue, None)
                continue
            if queue.poisoned and self._transactional_id is None and not queue.unresolved():
                self._pass_gap(queue)
            if queue.may_send(now):
                node = self._client.leader(queue.partition)
                if node is None:
                    self._find_leader(queue, now)
                # A broker that is busy with enough requests leaves the queue in `_waiting`.
                elif (
                    self._requests_in_flight.get(node, 0) < most
                    and sizes.get(node, 0) < _REQUEST_BYTES
                ):
                    queue.missing_since = None
                    requests.setdefault(node, []).append(queue)
                    sizes[node] = sizes.get(node, 0) + queue.batches[0].batch.size
                    continue
            if queue.batches:
                due = min(due, queue.due(now))
        if due < inf:
            self._wake_in(due - now)
        for node, queues in requests.items():
            self._requests_in_flight[node] = self._requests_in_flight.get(node, 0) + 1
            self._spawn(
                self._produce(node, [(queue, queue.take()) for queue in queues]),
                f"produce to broker {node}",
            )
        return sum(sizes.values())

    def _spawn(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- responses --------------------------------------------------------------------------------

    async def _produce(
        self, node: int, pending_batches: list[tuple[PartitionQueue, InFlightBatch]]
    ) -> None:
        by_place = {queue.partition: (queue, pending) for queue, pending in pending_batches}
        abandoned = self._abandoned

        def check() -> None:
            # The wait for a connection, or for the end of a throttle, may take longer than the
            # lease.
            if self._abandoned is not abandoned or not (self._lease is None or self._lease.holds()):
                reason = "the lease of its member has ended, or the records are abandoned"
                raise Unavailable(reason, away=True)

        try:
            topics: dict[str, list[tuple[int, Any]]] = {}
            for queue, pending in pending_batches:
                # Stamp at each attempt: the identity may have changed since the last attempt.
                buffer = pending.batch.stamped(*queue.identity, pending.sequence)
                topics.setdefault(queue.partition.topic, []).append(
                    (queue.partition.partition, buffer)
                )
            # All partitions of a broker share one request: a request costs the broker about the
            # same regardless of its size.
            request = ProduceRequest(
                self._transactional_id,
                # With fewer replicas, records could be lost on which a commit relies.
                _ALL_REPLICAS,
                self._client.options.request_timeout_ms,
                list(topics.items()),
                check,
            )
            # The broker may use the whole timeout for replication, so its response may come a
            # little later.
            limit = self._client.options.request_timeout_ms + 2_000
            began = perf_counter()
            response = await self._client.send(node, request, channel=PRODUCE, timeout_ms=limit)
            self._figures.times.add((perf_counter() - began) * 1000)
            self._answered(by_place, response)
            for queue, pending in by_place.values():
                self._retry(
                    queue, pending, f"broker {node} did not answer for its partition", stale=True
                )
        except Unavailable as error:
            for queue, pending in by_place.values():
                self._retry(queue, pending, str(error), stale=True, away=error.away)
        except LogError as error:
            self._fail_sent(by_place.values(), error)
        except asyncio.CancelledError:
            # `close` has cancelled this task, and fails the batches.
            raise
        except BaseException as error:
            # A bug: fail the batches, so that no caller waits forever.
            failed = LogError(
                f"sending records for {', '.join(map(str, by_place))} failed: {error!r}"
            )
            failed.__cause__ = error
            self._fail_sent(by_place.values(), failed)
            raise
        finally:
            self._requests_in_flight[node] -= 1
            self.go()

    def _answered(
        self, by_place: dict[TopicPartition, tuple[PartitionQueue, InFlightBatch]], response: Any
    ) -> None:
        """Handle the answers to a request, and remove their partitions from `by_place`."""
        for topic, partitions in response.topics:
            for number, code, offset, _, _, records, message in partitions:
                # A plain tuple finds an equal named tuple, and costs less.
                place: Any = (topic, number)
                queue, pending = by_place[place]
                if code == NONE and offset >= 0:
                    self._figures.records += pending.batch.count
                    self._figures.bytes += pending.batch.size
                    queue.written(pending, offset + pending.batch.count)
                else:
                    self._not_written(queue, pending, code, records, message)
                # Only now: a batch with an answer that cannot be handled fails, too.
                del by_place[place]

    def _not_written(
        self,
        queue: PartitionQueue,
        pending: InFlightBatch,
        code: int,
        records: Sequence[tuple[int, str | None]],
        message: str | None,
    ) -> None:
        if code in RETRIABLE:
            self._retry(
                queue, pending, f"its leader answered {name_of(code)}", stale=code in STALE_METADATA
            )
        elif (
            code == OUT_OF_ORDER_SEQUENCE_NUMBER
            and not queue.poisoned
            # This rejection results from the failure of the earlier batch; it says nothing about
            # this batch.
            and queue.unresolved_before(pending)
        ):
            self._retry(queue, pending, "an earlier batch has to be repeated first", stale=False)
        # A restarted leader may know only the last batch, so this answer does not prove a loss. A
        # leader that has written the batch may not know its offset.
        elif code in _WRITTEN or (code in _FORGOTTEN and pending.repeated):
            self._spawn(
                self._find(queue, pending, code), f"find {queue.partition} {pending.sequence}"
            )
        else:
            queue.answered(pending)
            self._refused(queue, pending, code, records, message)

    async def _find(self, queue: PartitionQueue, pending: InFlightBatch, code: int) -> None:
        """Find out whether and where a batch was written. Until then it is in flight."""
        what = f"repeated records for {queue.partition} were refused"
        try:
            next_offset = await find_written(
                self._client,
                queue.partition,
                queue.next_offset,
                queue.identity,
                pending.sequence,
                pending.batch.count,
            )
        except LogTimeout as error:
            # The leader is unreachable: ask again, until the batch times out.
            self._retry(queue, pending, str(error), stale=True)
        except Exception as error:  # noqa: BLE001 - a caller waits for the piece to end
            # Keep the batch in flight until here: send no newer batch while it is undecided.
            queue.answered(pending)
            kind = LogError if self._transactional_id is None else TransactionAborted
            unknown = f"it is not known whether they were written: {error!r}"
            self._fail(queue, pending, kind(f"{what} by {name_of(code)}, and {unknown}"))
        else:
            if next_offset is not None:
                queue.written(pending, next_offset)
            else:
                queue.answered(pending)
                self._refused(queue, pending, code)
        self.go()

    def _refused(
        self,
        queue: PartitionQueue,
        pending: InFlightBatch,
        code: int,
        records: Sequence[tuple[int, str | None]] = (),
        message: str | None = None,
    ) -> None:
        transactional = self._transactional_id is not None
        if code in _TOO_LARGE and pending.batch.count > 1:
            # The limit concerns the whole batch; a single record that is too large fails below.
            self._split(queue, pending)
        # The producer finds out the cause: it may be fenced, or its transaction has timed out.
        elif transactional and (code in FENCED or code == INVALID_TXN_STATE):
            self._fail(
                queue,
                pending,
                EpochRefused(f"the leader of {queue.partition} answered {name_of(code)}"),
            )
        elif transactional and code in _FORGOTTEN:
            reason = (
                f"an earlier batch for {queue.partition} failed"
                if queue.poisoned
                else f"the leader of {queue.partition} answered {name_of(code)}: it has lost "
                "records of this producer, or its state"
            )
            self._fail(queue, pending, TransactionAborted(reason))
        elif code in _FORGOTTEN:
            self._resend(queue, pending, code)
        elif code in _WRITTEN:
            self._fail(
                queue,
                pending,
                LogError(
                    f"records for {queue.partition} were written at an unknown offset, because the "
                    "first answer was lost"
                ),
            )
        else:
            self._fail(queue, pending, refusal(queue.partition, pending, code, records, message))

    def _resend(self, queue: PartitionQueue, pending: InFlightBatch, code: int) -> None:
        """Resend a batch with the next epoch; it is certain that it was not written before."""
        if code == OUT_OF_ORDER_SEQUENCE_NUMBER and not queue.poisoned:
            _log.warning(
                "the leader of %s answered %s: it may have lost acknowledged records, as after an "
                "unclean election; the producer goes on with a new epoch",
                queue.partition,
                name_of(code),
            )
        pending.sequence = -1
        queue.requeue(name_of(code), pending)
        self._poison(queue)
        self._waiting[queue] = None
        # A leader that gives the same answer again must not be asked in a tight loop.
        pause = queue.backoff.pause_s(self._client.options, away=False)
        queue.not_before = asyncio.get_running_loop().time() + pause

    def _retry(
        self,
        queue: PartitionQueue,
        pending: InFlightBatch,
        reason: str,
        *,
        stale: bool,
        away: bool = False,
    ) -> None:
        queue.answered(pending)
        if self._closed:
            self._fail(
                queue,
                pending,
                LogClosed(
                    "the producer was closed, and it is not known whether records for "
                    f"{queue.partition} were written"
                ),
            )
            return
        # From here on a rejection does not prove that the batch is missing: this attempt may have
        # succeeded.
        pending.repeated = True
        queue.requeue(reason, pending)
        self._waiting[queue] = None
        if queue.is_slow(now := asyncio.get_running_loop().time()):
            self._slow.note(queue.partition, reason)
        queue.not_before = now + queue.backoff.pause_s(self._client.options, away=away)
        if stale:
            self._refresh()

    def _split(self, queue: PartitionQueue, pending: InFlightBatch) -> None:
        """Split a batch that is too large for the topic; the parts share its sequence numbers."""
        made = pending.split(self._encoder)
        queue.requeue("it was too large and has been split", *made)
        self._waiting[queue] = None
        join([smaller.next_offset for smaller in made], pending.next_offset)

    def _fail(self, queue: PartitionQueue, pending: InFlightBatch, error: LogError) -> None:
        # A batch without a number leaves no gap.
        if pending.sequence >= 0:
            self._poison(queue)
        pending.fail(error)

    def _fail_sent(
        self, sent: Iterable[tuple[PartitionQueue, InFlightBatch]], error: LogError
    ) -> None:
        for queue, pending in sent:
            # The failure may have come after the batch was noted as answered.
            if pending in queue.in_flight:
                queue.answered(pending)
            self._fail(queue, pending, error)

    def _fail_all(self, queue: PartitionQueue, error: LogError) -> None:
        while queue.batches:
            self._fail(queue, queue.batches.popleft(), error)

    def _poison(self, queue: PartitionQueue) -> None:
        queue.poison(
            None
            if self._transactional_id is None
            else TransactionAborted(f"an earlier batch for {queue.partition} failed")
        )

    # --- waiting ----------------------------------------------------------------------------------

    def _expire(self, queue: PartitionQueue, now: float) -> None:
        while (
            queue.batches
            # A batch in flight may still be written: wait for its answer, or the request's timeout.
            and not queue.in_flight
            and (queue.is_abandoned() or queue.batches[0].deadline <= now)
        ):
            error = self._abandoned if queue.is_abandoned() else None
            pending = queue.batches.popleft()
            known = (
                "none of them were written"
                if pending.sequence < 0
                else "it is not known whether any were written"
            )
            limit = self._client.options.delivery_timeout_ms
            late = LogTimeout(
                f"records for {queue.partition} were not written within {limit} ms "
                f"({known}): {queue.reason}"
            )
            self._fail(queue, pending, error or late)

    def _find_leader(self, queue: PartitionQueue, now: float) -> None:
        """Look up the leader of a queue, with a short wait for a missing partition."""
        wait = self._client.options.missing_topic_wait_s
        # Brokers know a new topic within moments: look again soon, but not in a tight loop.
        pause = max(LEAST_S, min(wait / 4, 0.1))
        if queue.missing_since is None:
            queue.missing_since = now
        elif now - queue.missing_since >= wait:
            why = self._client.why_no_leader(queue.partition, since=queue.missing_since)
            if not isinstance(why, Unavailable):
                queue.missing_since = None
                self._fail_all(queue, why)
                return
            queue.reason = str(why)
            if isinstance(self._client.why_no_leader(queue.partition), Unavailable):
                # The partition may have no leader for minutes, and many producers may ask the
                # remaining brokers: look less and less often.
                most = self._client.options.retry_backoff_max_ms / 1000
                pause = max(pause, min((now - queue.missing_since) / 4, most))
        queue.not_before = now + pause
        self._refresh()

    def _wake_in(self, delay: float) -> None:
        loop = asyncio.get_running_loop()
        when = loop.time() + delay
        if self._timer is not None:
            # Use the stored time: in uvloop, the handle of a timer that is due does not know it.
            if self._wake_at <= when:
                return
            self._timer.cancel()
        self._timer, self._wake_at = loop.call_at(when, self._wake), when

    def _wake(self) -> None:
        self._timer = None
        self.go()

    def _refresh(self) -> None:
        if not self._refreshing:
            self._refreshing = True
            self._spawn(
                self._do_refresh({partition.topic for partition in self._queues}), "look up leaders"
            )

    async def _do_refresh(self, topics: Iterable[str]) -> None:
        try:
            await self._client.refresh(topics)
        except LogError as error:
            _log.debug("could not look up leaders: %s", error)
        finally:
            self._refreshing = False
            self.go()

    # --- identities -------------------------------------------------------------------------------

    def _pass_gap(self, queue: PartitionQueue) -> None:
        """Continue with the next epoch, once no batch of the present epoch is undecided.

        A leader recognizes duplicates by identity and number. If a batch has already been written,
        the leader would write it again with a new identity.
        """
        producer_id, epoch = queue.identity
        if epoch < _LAST_EPOCH:
            queue.renew(Identity(producer_id, epoch + 1))
        elif self._renew is not None and not self._renewing:
            self._renewing = True
            self._spawn(self._do_renew(queue, self._renew), "new producer id")

    async def _do_renew(
        self, queue: PartitionQueue, renew: Callable[[], Awaitable[Identity]]
    ) -> None:
        try:
            queue.renew(await renew())
        except LogTimeout as error:
            # Ask again, until the batches time out.
            queue.reason = str(error)
        except LogError as error:
            self._fail_all(queue, error)
        finally:
            self._renewing = False
            self.go()

    def reset(self, identity: Identity) -> None:
        """Continue with a new identity; no batch of the old identity may be undecided."""
        self.identity = identity
        for queue in self._queues.values():
            queue.renew(identity)
        self.go()

    async def wait_for(self, outcomes: Iterable[Outcome]) -> None:
        """Wait until all of these batches have an outcome."""
        await wait_for(outcomes)

    def abandon(self, error: LogError) -> None:
        """Send and repeat nothing more of the present batches.

        These batches fail with `error`, once brokers have answered the batches in flight. Without
        transactions, connections with batches in flight are aborted instead.
        """
        self._abandoned = error
        for queue in self._queues.values():
            queue.abandon()
        # Brokers refuse late batches of a transaction by its epoch.
        if self._transactional_id is None:
            self._client.cut(PRODUCE)
        self.go()

    async def close(self, error: LogError) -> None:
        """Close; undecided batches fail with `error`."""
        self._closed = True
        self._slow.tell()
        for queue in self._queues.values():
            self._fail_all(queue, error)
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
        # The member may leave next, so that others write: the kernel must not write behind them.
        if self._lease is not None:
            self._client.cut(PRODUCE)
        for queue in self._queues.values():
            for pending in queue.in_flight:
                self._fail(queue, pending, error)
            queue.in_flight.clear()


def refusal(
    partition: TopicPartition,
    pending: InFlightBatch,
    code: int,
    records: Sequence[tuple[int, str | None]],
    message: str | None,
) -> LogError:
    """Return the error for a refused batch, with the records that the broker names (KIP-467).

    If the broker names none, the error concerns all records of the batch, but no other batch.
    """
    # Hundreds of records may have the same reason.
    reasons = dict.fromkeys(
        text for text in (message, *(reason for _, reason in records)) if text is not None
    )
    detail = "; ".join(tuple(reasons)[:_REASONS]) or None
    error = error_of(code, f"records for {partition} were refused", detail)
    if isinstance(error, InvalidRecord | RecordTooLarge):
        count = pending.batch.count
        named = {index for index, _ in records if 0 <= index < count} or range(count)
        return type(error)(str(error), [pending.first + index for index in named])
    return error
