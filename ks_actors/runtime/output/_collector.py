"""The collector actor: one producer, everything in order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, assert_never, cast

from actors import Actor, Mailbox, Signal, Stopping
from ks_actors._errors import (
    IllegalGeneration,
    LogTimeout,
    ProduceFailed,
    ProductionFailed,
    TransactionAborted,
)
from ks_actors.lifecycle import as_exception, component_log
from ks_actors.log import Outgoing
from ks_actors.records import Batch, TopicPartition
from ks_actors.records import partition as default_partition
from ks_actors.runtime import messages as m
from ks_actors.runtime.messages import CollectorMessage
from ks_actors.runtime.output._abort import aborted
from ks_actors.runtime.output._coalesce import LARGEST, LARGEST_OF_BYTES, merged, split
from ks_actors.runtime.output._linger import Linger
from ks_actors.runtime.output._next_epoch import NextEpochOutput
from ks_actors.runtime.output._pending_bytes import PendingBytes
from ks_actors.runtime.output._rejected_records import BARREN_ATTEMPTS, LeftOut, RecordsLeftOut
from ks_actors.task import UNKNOWN_PARTITION, Unplaced

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from actors import Ref, Reply
    from ks_actors.config import DeadLetter
    from ks_actors.log import Lease, PatientLog, Producer, TopicDescription, TransactionalProducer
    from ks_actors.runtime.output._rejected_records import Refused
    from ks_actors.runtime.shared import Metrics
    from ks_actors.task import TopicSizes

COLLECTOR_MAILBOX = Mailbox(capacity=100_000, overflow="fail_system")
# Bytes of pending records. A commit emits all new table updates at once: with much less room than
# for the updates of two commits, no task could work during a commit.
_HIGH = 16 << 20
_LOW = 8 << 20
# The number of records that justifies opening a transaction.
_ENOUGH = 5_000
# Bytes per send. The limit matters because each send blocks the event loop for a few turns.
_MOST = 8 << 20
# The share of the caller's timeout: the caller then sees the reason, not a timeout.
_SHARE = 0.95
# Errors of a partition after which all work since the last commit is simply done again.
_REPEATED = (LogTimeout, TransactionAborted)
_NOTHING_WRITTEN = m.Written(0, 0)
_log = component_log(__name__)


class Collector(Actor[CollectorMessage]):
    """Write the output and the changelogs of all tasks, with one send under way at a time.

    Output of the next commit waits for NextEpoch, so that a transaction has exactly the output that
    its offsets cover. When too much is pending, the task manager gets OutputPressure and stops the
    work. With transactions, `renew` returns another producer of the transactional id after fencing,
    and aborts are retried for `timeout_s` seconds. Without transactions, the producer writes under
    the `lease` of the membership. When the tasks are lost or rolled back, the producer abandons the
    output that it has not sent. Output that trickles then waits until half of `linger` (seconds)
    after the last send, to gather records. After a quiet moment, the first output waits 1 ms.
    """

    def __init__(
        self,
        producer: Producer | TransactionalProducer,
        log: PatientLog,
        *,
        epoch: int,
        manager: Callable[[], Ref[m.TaskManagerMessage]],
        committer: Callable[[], Ref[m.CommitterMessage]],
        refused: Callable[[TopicPartition, Sequence[Batch], Exception, int], Refused | None],
        sizes: TopicSizes,
        metrics: Metrics,
        renew: Callable[[], Awaitable[TransactionalProducer]] | None,
        lease: Lease,
        timeout_s: float,
        linger: float = 0.0,
    ) -> None:
        self._producer = producer
        self._renew = renew
        self._lease = lease
        self._timeout_s: float = timeout_s
        self._pace = Linger(linger)
        self._log = log
        self._largest: int = LARGEST_OF_BYTES if log.bytes_per_write else LARGEST
        self._epoch: int = epoch
        # The first epoch after the last abort.
        self._since: int = epoch
        self._committer = committer
        self._manager = manager
        self._refused = refused
        self._left_out = LeftOut()
        self._metrics = metrics
        self._ready: list[Outgoing] = []
        self._next_epochs: dict[int, list[Outgoing]] = {}
        self._kept_apart = NextEpochOutput()
        self._pending = PendingBytes()
        self._sending = self._sizing = False
        # The number of records of this epoch that are not sent yet.
        self._gathered: int = 0
        self._unsized: list[Outgoing] = []
        self._pressed = self._relief_asked = False
        self._flush: m.Flush | None = None
        self._written: dict[TopicPartition, m.Written] = {}
        self._sizes = sizes
        self._failure: Exception | None = None
        self._abort: m.Abort | None = None

    async def signal(self, signal: Signal) -> None:
        """Close the producer at the end."""
        if isinstance(signal, Stopping):
            # tasks.
            self._lease.forget()
            await self._producer.close()

    def receive(self, message: CollectorMessage) -> None:
        """Write, flush, commit, or abort."""
        match message:
            case m.Output():
                self._take(message)
            case m.SendEnded():
                self._note(message)
            case m.SendFailed():
                self._handle_refusal(message)
            case m.PartitionsKnown():
                self._sized(message)
            case m.Flush():
                self._gather(self._kept_apart.take(message.output_ids, message.epoch))
                # Answered by `_go_on` when nothing is under way any more.
                self._flush = message
            case m.KeepBatches():
                self._pending.gone(self._kept_apart.retain(message.output_ids))
                self._update_pressure()
            case m.CommitTransaction():
                self._commit(message)
            case m.Abort():
                self._abort = message
                # All tasks do their work again. A send that has timed out here may not have ended
                # in the producer, and must not be written behind output of the tasks' next owner.
                self._producer.abandon()
            case m.Abandon():
                self._abandon(message.cause)
            case m.LingerOver():
                self._pace.rested()
            case m.NextEpoch():
                self._epoch = message.epoch
                # The ends of one commit, for the changelog offsets of its stores.
                self._written = {}
                self._relief_asked = False
                self._left_out.committed()
                self._gather(self._next_epochs.pop(message.epoch, []))
            case _:
                assert_never(message)
        self._go_on()

    # --- records ----------------------------------------------------------------------------------

    def _take(self, message: m.Output) -> None:
        if message.epoch < self._since:
            # Output of an aborted epoch is void: its records are processed again. Late output of a
            # committed epoch counts: its task was in a thread, and the commit has left the task
            # out.
            self._metrics.stale += 1
            return
        batches = message.batches
        # Counted even when the batches are held back: the limit is about memory, not about the log.
        self._pending.come(batches)
        if message.output_id is not None:
            self._kept_apart.add(message.output_id, message.epoch, batches)
            self._update_pressure()
        elif message.epoch > self._epoch:
            # A commit is under way: its transaction must not include this output.
            # Without transactions too: offsets of this commit must not be ahead of output that
            # follows them.
            self._next_epochs.setdefault(message.epoch, []).extend(batches)
            self._update_pressure()
        else:
            self._gather(batches)

    def _gather(self, batches: Sequence[Outgoing]) -> None:
        self._gathered += sum(len(outgoing.batch) for outgoing in batches)
        self._queue(batches)

    def _queue(self, batches: Sequence[Outgoing], missing: Collection[str] = ()) -> None:
        # Batches that waited for the size of a topic go before the others once the size is known.
        waiting, self._unsized = self._unsized, []
        for outgoing in (*waiting, *batches):
            topic, number = outgoing.partition
            if number != UNKNOWN_PARTITION:
                self._ready.append(outgoing)
            # A missing topic counts as a topic of one partition: the log then reports the fault.
            elif size := self._sizes(topic) or (1 if topic in missing else 0):
                self._place(outgoing, size)
            else:
                self._unsized.append(outgoing)
        self._find_sizes()
        self._update_pressure()

    def _find_sizes(self) -> None:
        """Look up the partition counts of topics unknown at the start."""
        if self._unsized and not self._sizing:
            # Use one lookup for all topics of unknown size: otherwise each batch would ask again.
            self._sizing = True
            names = {outgoing.partition.topic for outgoing in self._unsized}
            self.ctx.pipe(
                self._log.describe_topics(names, configs=False), partial(_sized, names), _unsizable
            )

    def _sized(self, found: m.PartitionsKnown) -> None:
        self._sizing = False
        if found.error is not None:
            if self._unsized:
                self._fail(found.error)
            return
        self._sizes.know({name: size for name, size in found.partitions.items() if size})
        # Let the log report a missing topic. It may be created later, so its size is looked up
        # again.
        self._queue((), [name for name, size in found.partitions.items() if not size])

    def _place(self, outgoing: Outgoing, size: int) -> None:
        if not isinstance(outgoing, Unplaced):
            self._ready.extend(
                split(outgoing.partition.topic, outgoing.batch, size, default_partition)
            )
            return
        try:
            placed = outgoing.placed(size)
        except BaseException as error:  # noqa: BLE001 - a user's function chooses partitions
            self._fail(as_exception(error))
        else:
            self._pending.change(sum(len(each.batch) for each in placed) - len(outgoing.batch))
            self._ready.extend(placed)

    def _go_on(self) -> None:
        if not self._sending:
            if self._abort is not None:
                self._start_abort(self._abort)
            elif self._failure is None and self._worth_sending():
                self._send()
        self._answer_flush()

    def _worth_sending(self) -> bool:
        """Return whether to write now, or later together with more output.

        Output in a transaction is invisible until the end, so there is no hurry. While nothing is
        written, no transaction is open. An open transaction of a killed instance blocks readers
        from all later records until it times out.
        """
        if self._flush is not None or self._pressed:
            return True
        return self._gathered >= _ENOUGH if self._renew is not None else self._has_rested()

    def _has_rested(self) -> bool:
        """Return whether ready output may be written now; otherwise start the linger timer."""
        allowed = self._pace.allows(self._pending.bytes)
        if not allowed and self._ready and "linger" not in self.ctx.timers:
            self.ctx.timers.once("linger", self._pace.rest(self.ctx.time()), m.LingerOver())
        return allowed

    def _send(self) -> None:
        while self._ready:
            portion = self._portion()
            batches, letters, records = self._left_out.without(portion)
            self._gathered = max(
                0, self._gathered - records - sum(len(outgoing.batch) for outgoing in batches)
            )
            if records:
                self._pending.replaced(portion, batches)
            self._write_letters(letters)
            # All records of a portion may be records dropped in the last attempt: then go on to the
            # next portion.
            if batches:
                self._sending = True
                self._pace.sent(self.ctx.time())
                self.ctx.timers.cancel("linger")
                self.ctx.pipe(
                    self._producer.send(batches),
                    partial(_sent, batches=batches),
                    partial(m.SendFailed, batches),
                )
                return

    def _portion(self) -> list[Outgoing]:
        """Take as much of the ready output as one send may have."""
        size = taken = 0
        for outgoing in self._ready:
            taken += 1
            size += self._pending.bytes_of(outgoing.batch)
            self._pending.set_out(outgoing.batch)
            if size >= _MOST:
                break
        portion, self._ready = self._ready[:taken], self._ready[taken:]
        joined = merged(portion, self._largest)
        self._pending.replaced(portion, joined)
        return joined

    def _answer_flush(self) -> None:
        if self._flush is None:
            return
        if self._failure is not None:
            flush, self._flush = self._flush, None
            flush.reply.fail(self._failure)
        elif not (self._sending or self._ready or self._unsized):
            flush, self._flush = self._flush, None
            flush.reply.tell(dict(self._written))

    def _note(self, sent: m.SendEnded) -> None:
        self._sending = False
        records = 0
        for outgoing, end in zip(sent.batches, sent.ends, strict=True):
            count = len(outgoing.batch)
            _, before, size = self._written.get(outgoing.partition, _NOTHING_WRITTEN)
            size += self._pending.written_bytes(outgoing.batch)
            self._written[outgoing.partition] = m.Written(end, before + count, size)
            records += count
        self._pending.gone(sent.batches)
        self._metrics.produced += records
        self._update_pressure()

    def _handle_refusal(self, failed: m.SendFailed) -> None:
        """Let the handler decide about rejected batches; any other failure ends the epoch."""
        self._sending = False
        self._pending.gone(failed.batches)
        error = failed.error
        given_up = self._failure is not None or self._abort is not None
        if not isinstance(error, ProduceFailed) or given_up:
            self._fail(error)
            return
        void = next((why for why in error.errors.values() if isinstance(why, _REPEATED)), None)
        if void is not None:
            # The error is not about records: all output is repeated when the log answers. A single
            # such partition is enough: at-least-once repeats all output anyway, and under
            # exactly-once the transaction cannot be kept.
            self._fail(void)
            return
        going_on: list[Refused] = []
        for partition, why in error.errors.items():
            batches = [each.batch for each in failed.batches if each.partition == partition]
            try:
                refused = self._refused(partition, batches, why, error.written.get(partition, 0))
            except ProductionFailed as raised:  # the handler is at fault
                self._fail(raised)
                return
            if refused is None:
                failure = ProductionFailed(
                    f"the log refused records: {why}",
                    topic=partition.topic,
                    partition=partition.partition,
                )
                failure.__cause__ = why
                self._fail(failure)
                return
            going_on.append(refused)
        if self._renew is not None:
            self._repeat_without(going_on, error)
            return
        rest = [outgoing for refused in going_on for outgoing in refused.rest]
        self._pending.come_again(rest)
        # Insert at the front, to keep the order within the partition.
        self._ready[:0] = rest
        self._write_letters(
            [letter for refused in going_on for _, letters in refused.dropped for letter in letters]
        )

    def _repeat_without(self, going_on: list[Refused], error: ProduceFailed) -> None:
        """Let the failed transaction be repeated without the dropped records."""
        if self._left_out.is_stuck():
            partition, why = next(iter(error.errors.items()))
            failure = ProductionFailed(
                f"the log has refused records in {BARREN_ATTEMPTS + 1} attempts in a row, though "
                "the handler drops them: their bytes differ in each attempt, so they are not "
                "recognized. Write the same bytes for the same input (without random ids and the "
                f"present time), or filter before the sink: {why}",
                topic=partition.topic,
                partition=partition.partition,
            )
            failure.__cause__ = why
            self._fail(failure)
            return
        for refused in going_on:
            self._left_out.add(refused)
        self._fail(
            RecordsLeftOut(
                "the log refused records; they are dropped, and all others are written again: "
                f"{error}"
            )
        )

    def _write_letters(self, letters: Sequence[DeadLetter]) -> None:
        self._pending.change(len(letters))
        for letter in letters:
            batch = Batch([letter.key], [letter.value], [letter.timestamp], [letter.headers])
            self._unsized.append(Outgoing(TopicPartition(letter.topic, UNKNOWN_PARTITION), batch))
        self._queue(())

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
            # A flush or an abort under way reports the error itself.
            if self._flush is None and self._abort is None:
                # This error fails the commit, which then rolls back to the previous commit.
                self._committer().tell(m.Commit(None, f"output failed: {error}"))

    def _update_pressure(self) -> None:
        waiting = self._pending.bytes
        if not self._pressed and waiting >= _HIGH:
            self._pressed = True
            self._manager().tell(m.OutputPressure(high=True))
        elif self._pressed and waiting <= _LOW:
            self._pressed = False
            self._manager().tell(m.OutputPressure(high=False))
        # Output kept apart is sent only with a commit: ask for a commit to relieve the pressure.
        if self._pressed and self._kept_apart and not self._relief_asked:
            self._relief_asked = True
            self._committer().tell(
                m.Commit(None, "more output waits for a commit than the limit allows")
            )

    # --- transactions -----------------------------------------------------------------------------

    def _commit(self, message: m.CommitTransaction) -> None:
        """End the transaction in the background: output of the next transaction arrives meanwhile.

        That output must be counted.
        """
        self._sending = True
        # No send may start until the transaction has ended: `_sending` stays set.
        end = cast("TransactionalProducer", self._producer).commit(message.offsets, message.group)
        self.ctx.pipe(
            end, partial(_ended, reply=message.reply), partial(_end_failed, reply=message.reply)
        )

    def _abandon(self, cause: Exception | None) -> None:
        # A cause concerns a flush. Behind its flush a commit may succeed, and no Abort would clear
        # the failure.
        if cause is None or self._flush is not None:
            lost = "the membership was lost before all output was written"
            self._failure = self._failure or cause or IllegalGeneration(lost)
            self._producer.abandon()

    def _start_abort(self, abort: m.Abort) -> None:
        # The committer sends one request at a time, so it does not wait for a flush any more.
        self._abort = self._flush = None
        self._ready.clear()
        self._gathered = 0
        self._unsized.clear()
        self._next_epochs = {}
        self._kept_apart.clear()
        self._relief_asked = False
        self._pending.clear()
        self._written = {}
        self._failure = None
        self._left_out.rolled_back()
        self._epoch = self._since = abort.epoch
        self._update_pressure()
        if self._renew is None:
            abort.reply.tell(None)
        else:
            self._sending = True
            self.ctx.pipe(
                self._end_transaction(self._renew),
                partial(_ended, reply=abort.reply),
                partial(_end_failed, reply=abort.reply),
            )

    async def _end_transaction(self, renew: Callable[[], Awaitable[TransactionalProducer]]) -> None:
        producer = cast("TransactionalProducer", self._producer)
        self._producer = await aborted(
            producer, renew, self.ctx.time, self.ctx.time() + self._timeout_s * _SHARE
        )


def _sent(ends: Sequence[int], batches: Sequence[Outgoing]) -> CollectorMessage:
    return m.SendEnded(batches, ends)


def _sized(names: set[str], described: Mapping[str, TopicDescription]) -> CollectorMessage:
    return m.PartitionsKnown(
        {name: described[name].partitions if name in described else 0 for name in names}, None
    )


def _unsizable(error: Exception) -> CollectorMessage:
    return m.PartitionsKnown({}, error)


def _ended(_: None, reply: Reply[None]) -> CollectorMessage:
    reply.tell(None)
    return m.SendEnded((), ())


def _end_failed(error: Exception, reply: Reply[None]) -> CollectorMessage:
    reply.fail(error)
    return m.SendEnded((), ())
