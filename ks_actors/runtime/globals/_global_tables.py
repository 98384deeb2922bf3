"""The actor that fills the global stores."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, assert_never

from actors import Actor, Mailbox, Message, Reply, Signal, Started, Stopping
from ks_actors._errors import OffsetOutOfRange, StateError, StreamsError
from ks_actors.lifecycle import component_log, passes
from ks_actors.records import Batch, TaskId
from ks_actors.runtime import messages as m
from ks_actors.runtime.messages import FetchFailed, FetchSucceeded
from ks_actors.runtime.stores import Flusher
from ks_actors.task import Position, Role, Task, contained, passed_over, uncaught

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors import Ref
    from ks_actors.log import Fetched, Fetcher
    from ks_actors.records import TopicPartition
    from ks_actors.runtime.globals._global_stores import GlobalStores
    from ks_actors.runtime.output import DeadLetterWriter
    from ks_actors.runtime.shared import Metrics
    from ks_actors.task import StoreRegistry, TaskParts

GLOBAL_MAILBOX = Mailbox(capacity=10_000, overflow="fail_system")
_SLICE = 0.005
_ENDS_S = 10.0
# The pause in seconds after a failed read.
_AGAIN_S = 0.1
_log = component_log(__name__)
GLOBAL_TASK = TaskId(-1, 0)
"""The task that has the global stores."""


class AwaitFilled(Message, frozen=True):
    """Answer when the global stores hold all that their topics held at the start."""

    reply: Reply[None]


class ApplyBuffered(Message, frozen=True):
    """Continue with buffered records (internal)."""


class CommitGlobals(Message, frozen=True):
    """Commit custom stores (internal)."""


class FindEnds(Message, frozen=True):
    """Look up the ends of the topics again, because the old ends are not reached yet (internal)."""


class Ends(Message, frozen=True):
    """The present ends of the topics (internal)."""

    ends: Mapping[TopicPartition, int]


class LettersWritten(Message, frozen=True):
    """Continue: the log has the dead letters (internal)."""


class LettersFailed(Message, frozen=True):
    """End: dead letters cannot be written (internal)."""

    error: Exception


GlobalMessage = (
    AwaitFilled
    | FetchSucceeded
    | FetchFailed
    | ApplyBuffered
    | CommitGlobals
    | FindEnds
    | Ends
    | LettersWritten
    | LettersFailed
)


class GlobalTables(Actor[GlobalMessage]):
    """The actor that fills the global stores with their topics.

    It reads the whole topics before any task is processed, and follows them from then on. It
    applies records in slices. Applied records are final at once, for the topic is the store's
    changelog. Stores on disk resume at their positions and are flushed now and then, between
    slices; a crash costs no more than for tasks. Dead letters are written before processing
    continues, so no position is ahead of a dead letter, and a fatal error is raised only after the
    letters are written.
    """

    def __init__(
        self,
        parts: TaskParts,
        registry: StoreRegistry,
        stores: GlobalStores,
        fetcher: Fetcher,
        letters: DeadLetterWriter,
        *,
        poll_ms: int,
        instance: Ref[m.InstanceMessage],
        metrics: Metrics,
    ) -> None:
        self._global = stores
        self._stores = stores.stores
        parts.global_stores.update({name: self._stores.store(name) for name in self._stores.names})
        self._fetcher = fetcher
        self._letters = letters
        self._instance = instance
        self._metrics = metrics
        self._poll_ms: int = poll_ms
        self._clock = parts.clocks.work_time
        self._ends: dict[TopicPartition, int] = dict(stores.ends)
        self._asked: list[Reply[None]] = []
        self._failure: Exception | None = None
        self._fetching: bool = False
        self._looking: bool = False
        self._broken: bool = False
        self._writing: bool = False
        # Topics that have lost records of the stores, each with the reason.
        self._lost: dict[TopicPartition, str] = {}
        # The error to raise once its dead letters are written.
        self._fault: Exception | None = None
        self._dropped: int = 0
        self._flusher = Flusher({GLOBAL_TASK: self._stores})
        self._positions: dict[TopicPartition, int] = dict(stores.begins)
        self._committed: Mapping[TopicPartition, int] = {}
        self._commit_s: float = parts.config.commit_interval_ms / 1000
        positions = {partition: Position(offset) for partition, offset in self._positions.items()}
        self._task = Task(
            GLOBAL_TASK, parts, positions, self._stores, wake=lambda: None, current=stores.current
        )
        # Tables need no order across partitions. The next fetch comes only when all records are
        # applied, so a wait for another partition's records would never end.
        self._task.group.wait_for_none()
        self._store_registry = registry
        registered = self._store_registry.active(self._task, self._positions)
        assert registered is not None  # the task has stores
        # Queries are refused until the topics have been read to their ends.
        registered.role = Role.RESTORING
        self._registered = registered

    async def signal(self, signal: Signal) -> None:
        """Start reading; at the end, commit and close."""
        if isinstance(signal, Started):
            self._task.start()
            for partition, position in self._positions.items():
                # Treat each topic as known to be empty, so that no topic delays another topic.
                self._task.add(partition, Batch([], [], []), position, position)
            self._fetcher.assign(self._positions)
            self.ctx.timers.every("ends", _ENDS_S, FindEnds())
            self._note_filled()
            self._fetch()
        elif isinstance(signal, Stopping):
            self._store_registry.leave(GLOBAL_TASK)
            await self._fetcher.close()
            await self._letters.close()
            self._task.close()
            # After an error a position may be ahead of its record.
            if not self._broken:
                self._commit()
            try:
                await self.ctx.blocking(partial(self._stores.close, clean=not self._broken))
                if self._lost:
                    await self.ctx.blocking(partial(self._global.discard, self._lost))
            except StateError as error:
                _log.warning(
                    "could not close the global stores; the next start reads the missing records "
                    "again: %s",
                    error,
                )

    def receive(self, message: GlobalMessage) -> None:
        """Apply a message.

        An error before all stores are filled fails the start; a later error ends the actor.
        """
        try:
            self._deal_with(message)
        except Exception as error:
            self._broken = True
            if not self._ends:
                raise
            self._fail_start(error)

    def _deal_with(  # noqa: C901, PLR0912 - one branch per message
        self, message: GlobalMessage
    ) -> None:
        match message:
            case AwaitFilled():
                if self._failure is None:
                    self._asked.append(message.reply)
                else:
                    message.reply.fail(self._failure)
            case FetchSucceeded():
                for fetched in message.fetched:
                    self._task.add(
                        fetched.partition, fetched.batch, fetched.next_offset, fetched.end_offset
                    )
                self._fetching = False
                self._go_on(idle=not any(len(fetched.batch) for fetched in message.fetched))
            case CommitGlobals():
                self._commit()
                return
            case FindEnds():
                if not self._broken:
                    self.ctx.pipe(self._global.find_ends(), Ends, _no_ends)
                return
            case Ends():
                if self._broken:
                    return
                # If a topic has lost records since the start, no record reaches the old end.
                for partition in self._ends.keys() & message.ends.keys():
                    self._ends[partition] = min(self._ends[partition], message.ends[partition])
            case ApplyBuffered():
                self._looking = False
                self._go_on()
            case LettersWritten() | LettersFailed():
                self._go_on_behind(message)
            case FetchFailed():
                self._fetching = False
                if passed := passed_over(message.error, self._fetcher, self._positions):
                    self._deal_with(FetchSucceeded(passed, message.epoch))
                else:
                    self._tell_unread(message.error)
                return
            case _:
                assert_never(message)
        self._note_filled()

    def _tell_unread(self, error: Exception) -> None:
        if isinstance(error, OffsetOutOfRange) and error.partition in self._positions:
            # The stores have rows that the topic lacks, so no handler can decide to go on.
            self._lost[error.partition] = str(error)
            raise StreamsError(
                f"a global table no longer fits its topic: {error}. Start the app again: it fills "
                "the table from the topic",
                topic=error.partition.topic,
                partition=error.partition.partition,
            ) from error
        failure = StreamsError(f"could not read the topics of global tables: {error}")
        if self._ends:
            raise failure from error
        self._instance.tell(m.Fatal(failure, rolled_back=False))
        # The handler may decide to go on, so reading continues, but not in a tight loop.
        self.ctx.timers.once("again", _AGAIN_S, ApplyBuffered())

    def _go_on_behind(self, letters: LettersWritten | LettersFailed) -> None:
        """Continue once the log has the dead letters, or raise the error that caused them."""
        failure = self._fault
        if isinstance(letters, LettersFailed):
            if failure is None:
                raise letters.error
            failure.add_note(f"its dead letters could not be written: {letters.error}")
        if failure is not None:
            raise failure
        self._writing = False
        self._publish()
        self._go_on()

    def _go_on(self, *, idle: bool = False) -> None:
        """Apply a slice of the buffered records, flush a little, and schedule the next step.

        Does not apply records while the flush is behind or the log lacks the dead letters.
        """
        if self._broken:
            return
        if not (self._writing or (self._flusher.busy and self._stores.behind)):
            self._apply()
        if self._flusher.begin(idle=idle and self._stores.pressing) or self._flusher.busy:
            self._flusher.turn(self._clock)
        buffered = self._task.group.buffered
        if not buffered:
            self._fetch()
        if ((buffered and not self._writing) or self._flusher.busy) and not self._looking:
            self._looking = True
            self.ctx.self_ref.tell(ApplyBuffered())

    def _apply(self) -> None:
        task = self._task
        try:
            task.process(_SLICE)
        except BaseException as error:
            if passes(error):
                raise
            self._fault = error if isinstance(error, Exception) else uncaught(task, error)
        self._metrics.global_dropped += task.dropped - self._dropped
        self._dropped = task.dropped
        if letters := task.take_output() + task.parting.take():
            self._writing = True
            self.ctx.pipe(self._letters.write(letters), _written, LettersFailed)
        elif self._fault is not None:
            raise self._fault
        else:
            self._publish()

    def _publish(self) -> None:
        """Publish the applied records."""
        self._positions = {
            partition: queue.position for partition, queue in self._task.group.queues.items()
        }
        token = self._stores.freeze(contained(self._positions))
        self._stores.publish(token, self._global.offsets(self._positions))
        self._registered.positions = self._positions
        if self._committed != self._positions and "commit" not in self.ctx.timers:
            self.ctx.timers.once("commit", self._commit_s, CommitGlobals())

    def _commit(self) -> None:
        """Commit custom stores if records were applied since the last commit."""
        if self._committed != self._positions:
            self._global.commit(self._positions)
            self._committed = dict(self._positions)

    def _fetch(self) -> None:
        if self._positions and not self._fetching:
            self._fetching = True
            self.ctx.pipe(self._fetcher.fetch(max_wait_ms=self._poll_ms), _arrived, _failed)

    def _fail_start(self, error: Exception) -> None:
        self._failure = error
        for reply in self._asked:
            reply.fail(error)
        self._asked.clear()

    def _note_filled(self) -> None:
        if all(self._positions[partition] >= end for partition, end in self._ends.items()):
            if self._registered.role is Role.RESTORING:
                self._commit()
            self._ends.clear()
            self.ctx.timers.cancel("ends")
            self._registered.role = Role.ACTIVE
            for reply in self._asked:
                reply.tell(None)
            self._asked.clear()


def _arrived(fetched: Sequence[Fetched]) -> GlobalMessage:
    return FetchSucceeded(fetched, 0)


def _written(_: None) -> GlobalMessage:
    return LettersWritten()


def _no_ends(error: Exception) -> GlobalMessage:
    _log.warning("could not look up the ends of global topics; retrying: %s", error)
    return Ends({})


def _failed(error: Exception) -> GlobalMessage:
    return FetchFailed(error, 0)
