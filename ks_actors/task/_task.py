"""One partition of one subtopology at work: the unit that is scheduled, committed and moved."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ks_actors._errors import StreamsError
from ks_actors.history import EdgeTaps
from ks_actors.metrics import Timing
from ks_actors.processors.api import PunctuationType
from ks_actors.system import Later
from ks_actors.task._compiler import Compiler
from ks_actors.task._error_handling import ExceptionHandlers
from ks_actors.task._node import TaskServices
from ks_actors.task._output_buffer import OutputBuffer
from ks_actors.task._partition_group import PartitionGroup
from ks_actors.task._progress import Progress
from ks_actors.task._record_context import RecordContextHolder
from ks_actors.task._record_queue import RecordQueue
from ks_actors.task._sink import Sink
from ks_actors.task._source import TopicSource
from ks_actors.task._states import TaskLife, TaskState, end_life, new_life
from ks_actors.task._update_cache import Caches, UpdateCache
from ks_actors.task.calls import Draining, ThreadGuard, in_flight_node
from ks_actors.task.figures import SinksFigures
from ks_actors.task.times import IdleNodes, PunctuationQueue, RunLength, Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ks_actors.log import OffsetAndMetadata, Outgoing
    from ks_actors.processors.api import IdleNode
    from ks_actors.records import Batch, TaskId, TopicPartition
    from ks_actors.state import TaskStores
    from ks_actors.task._compiler import Plan
    from ks_actors.task._offset_metadata import Position
    from ks_actors.task._output_buffer import Gathered
    from ks_actors.task._task_parts import TaskParts
    from ks_actors.task.calls import InFlight
    from ks_actors.topology import SinkNode

if TYPE_CHECKING:
    from ks_actors.task import _merged_run, turns

    _Turns = _merged_run.MergedTurns | turns.TableTurns
else:
    _merged_run = Later("ks_actors.task._merged_run")
    turns = Later("ks_actors.task.turns")

# Fewer records in a row than this are processed one by one.
_FEW = 4
# The estimated fixed cost of a turn.
_TURN_MS = 0.05


class Task:
    """Process the records of one set of partitions.

    Nothing here waits, and only one caller may use a task at a time.

    `positions` has for each partition the start offset, and the partition's time (ms, -1 unknown).
    A record goes from its queue through the compiled functions into the output buffer, and changes
    stores on the way. The committer decides when these changes become final: `positions` and
    stores' tokens of one moment belong together.
    """

    def __init__(
        self,
        task_id: TaskId,
        parts: TaskParts,
        positions: Mapping[TopicPartition, Position],
        stores: TaskStores | None,
        *,
        wake: Callable[[], None],
        current: RecordContextHolder | None = None,
        life: TaskLife | None = None,
    ) -> None:
        self.id: TaskId = task_id
        self.life: TaskLife = new_life(task_id) if life is None else life
        self.stores: TaskStores | None = stores
        self.commit_requested: bool = False
        self.commit_needed: bool = False
        self.broken: bool = False
        self.blocking: bool = False
        """Whether processing needs a thread."""
        self.thread_guard: ThreadGuard = ThreadGuard()
        self.processed: int = 0
        self.dropped: int = 0
        # In seconds; the worker adds to `busy`.
        self.busy: float = 0.0
        telemetry, window = parts.telemetry, parts.telemetry.window
        self.punctuator_times: Timing = Timing(window)
        # In seconds per record; measured above the level INFO only.
        self.record_times: Timing = Timing(window)
        self._parts = parts
        self._clocks = parts.clocks
        self._wake = wake
        self._uncommitted: int = 0
        self._current = current if current is not None else RecordContextHolder()
        self._output = OutputBuffer()
        self._tracing = parts.tracing(task_id)
        self.sinks: SinksFigures = SinksFigures(self._output.sinks, telemetry.ages, window)
        self._handlers = ExceptionHandlers(
            task_id,
            parts.config,
            parts.topics.partitions,
            telemetry,
            self._current,
            self._output,
            self._count_dropped,
            self._tracing,
        )
        self.parting: OutputBuffer = self._handlers.parting
        self._stream_punctuation = PunctuationQueue()
        self._wall_punctuation = PunctuationQueue()
        self._run = RunLength()
        self._plan: Plan | None = None
        self._merged_turns: _Turns | None = None
        self.draining: Draining = Draining((), ())
        places = sorted(positions.items())
        queues = [
            RecordQueue(
                one,
                self._source(one.topic),
                at.offset,
                at.time,
                logged=one.topic not in parts.unlogged,
                window=window,
            )
            for one, at in places
        ]
        self.group: PartitionGroup = PartitionGroup(queues, parts.config.max_task_idle_ms)
        self.idle: IdleNodes = IdleNodes(self.group.queues)
        # Turns of several queues bypass tracing.
        self._takes_turns: bool = len(queues) > 1 and not self._tracing.on
        self._current.stream_time = max((at.time for at in positions.values()), default=-1)
        self._progress: Progress = Progress(positions.values())

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Create the processors; call it when the stores are restored."""
        if self.life.is_(TaskState.CREATED):
            # A task without stores has nothing to restore.
            self.life.to(TaskState.RESTORING)
        self._plan = self._compile()
        self.life.to(TaskState.RUNNING)

    def suspend(self) -> None:
        """Note that the task takes no new records, until it is closed."""
        if self.life.is_(TaskState.RUNNING):
            self.life.to(TaskState.SUSPENDED)

    def give_up(self) -> None:
        """Cancel the asynchronous calls in flight; drop their results."""
        for node in () if self._plan is None else self._plan.asynchronous:
            node.cancel()

    @property
    def uncommitted_bytes(self) -> int:
        """The approximate memory that the stores' open transactions take.

        While a thread has the task, this is the last value before.
        """
        # The thread changes the stores at this moment; reading their sizes would race with it.
        if self.thread_guard.since is None and self.stores is not None:
            self._uncommitted = self.stores.uncommitted_bytes
        return self._uncommitted

    @property
    def leaving(self) -> list[str]:
        """The asynchronous processors with cancelled calls that have not ended yet.

        Those calls may still use the stores.
        """
        return [node.node for node in self.async_nodes if node.leaving]

    def rewind(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Drop everything since the last commit, and continue from there with new processors.

        The stores' owner drops their changes.
        """
        self._close_plan()
        # Do this after closing processors: their `close` may still forward records that no commit
        # has.
        self._output.drop()
        self.parting.drop()
        for partition, position in positions.items():
            self.group.queues[partition].clear(position.offset, position.time)
        # Clocks and open deletes are committed with the positions, so they go back together.
        self._progress = Progress(positions.values())
        self._current.stream_time = max(
            (queue.partition_time for queue in self.group.queues.values()), default=-1
        )
        self.commit_needed = self.commit_requested = self.broken = False
        # New processors: a user's object may have kept state from the records that are taken back.
        self._plan = self._compile()

    def close(self) -> None:
        """Close the processors, and cancel calls in flight."""
        self.suspend()
        try:
            self._close_plan()
        finally:
            end_life(self.life)

    def abandon(self) -> None:
        """Leave processors unclosed, as if the process had died; cancel calls in flight."""
        plan, self._plan, self.blocking = self._plan, None, False
        self.draining.drop()
        self._tracing.end()
        for node in () if plan is None else plan.asynchronous:
            node.cancel()

    # --- records ----------------------------------------------------------------------------------

    def add(
        self, partition: TopicPartition, batch: Batch, next_offset: int, end_offset: int
    ) -> int:
        """Buffer records; return how many of the partition are buffered now."""
        # Raises KeyError for a partition that the task does not have: a bug, not a late message.
        queue = self.group.queues[partition]
        queue.add(batch, next_offset, end_offset)
        return queue.buffered

    def move(self, partition: TopicPartition, position: int) -> None:
        """Continue at `position` after the buffered records: the old position is not in the log."""
        self.group.queues[partition].move(position)
        self.idle.forget_ends()
        self.commit_needed = True

    def ready(self, now_ms: float) -> bool:
        """Return whether `process` has work at `now_ms` of the steady time."""
        assert self._plan is not None
        return (
            (self.draining.room() > 0 and self.group.ready(now_ms))
            or any(node.has_results for node in self._plan.asynchronous)
            or (bool(self.idle.nodes) and self.idle.ready(now_ms))
        )

    def wakes_at(self, now_ms: float) -> float | None:
        """Return the time (ms) at which `ready` may turn true by time alone; never without room."""
        if not (self.idle.nodes or self.group.buffered):
            return None
        inputs = self.group.wakes_at() if self.draining.room() > 0 else None
        waits = inputs, self.idle.wakes_at(now_ms)
        return min((at for at in waits if at is not None), default=None)

    def process(self, seconds: float) -> int:
        """Process for about `seconds`, or until nothing is left; return the number of records."""
        clock, steady_time = self._clocks.work_time, self._clocks.steady_time
        done, began = 0, clock()
        deadline = began + seconds
        while True:
            if self.draining.calls:
                self.draining.take_results()
            # Each call may add results and use up room, so ask again before every run.
            limit = self.draining.room() if self.group.buffered else 0
            if limit == 0 or not self.group.ready(steady_time()):
                break
            some = self._process_some(min(limit, self._run.records))
            done += some
            now = clock()
            self._run.adapt(some, now - began)
            if now >= deadline:
                break
            began = now
        self._close_idle()
        return done

    @property
    def work_ms(self) -> float:
        """The estimated time (ms) to process the buffered records, by the speed so far."""
        return _TURN_MS + self.group.buffered / self._run.records

    def process_one(self) -> bool:
        """Process one record as far as possible; return whether there was one."""
        self.draining.take_results()
        done = (
            self.draining.room() > 0
            and self.group.ready(self._clocks.steady_time())
            and self._process_some(1) > 0
        )
        return self._close_idle() or done

    def punctuate(self, now_ms: int) -> bool:
        """Call the wall-clock punctuators that are due."""
        # A punctuator has no record: metadata of the last record would be wrong.
        self._current.nowhere()
        before = self._progress.numbers()
        called = self._wall_punctuation.punctuate(now_ms)
        # A call without effect causes no commit, as its time is not committed.
        if called and not self.commit_needed:
            self.commit_needed = (
                self.commit_requested
                or not (self._output.empty and self.parting.empty)
                or self.in_flight + self.cached_updates > 0
                or self._progress.numbers() != before
                or (self.stores is not None and self.stores.any_changed)
            )
        # The partitions do not count as silent while the task worked.
        self.idle.note(self._clocks.steady_time())
        return called

    @property
    def next_punctuation(self) -> int | None:
        """The time (ms) when the next wall-clock punctuation is due."""
        wall, clocks = self._wall_punctuation, self._clocks
        return wall.due_by(clocks.wall_time(), clocks.steady_time()) if wall.wanted else None

    @property
    def in_flight(self) -> int:
        """The number of records that asynchronous processors have."""
        return sum(node.in_flight for node in self.async_nodes)

    def busy_nodes(self) -> list[str]:
        """Return the asynchronous processors that have records in flight."""
        return [node.node for node in self.async_nodes if node.in_flight]

    @property
    def async_nodes(self) -> tuple[InFlight, ...]:
        """The nodes of asynchronous processors."""
        plan = self._plan  # read once: `App.health` calls in other threads, and closing removes it
        return () if plan is None else plan.asynchronous

    @property
    def caches(self) -> tuple[UpdateCache, ...]:
        """The caches of stores."""
        return () if self._plan is None else self._plan.caches

    @property
    def drains(self) -> bool:
        """Whether a commit needs a drain: there are calls that may take long, or caches."""
        return self.draining.wanted

    @property
    def drained(self) -> bool:
        """Whether nothing is in flight or in a thread, and nothing held back."""
        return self.thread_guard.since is None and self.draining.done

    @property
    def can_drain(self) -> bool:
        """Whether `drain` has work."""
        return self.draining.ready

    @property
    def cached_updates(self) -> int:
        """The number of updates that caches hold back."""
        return self.draining.cached_updates

    @property
    def stream_time(self) -> int:
        """The highest timestamp of all records taken, -1 before the first."""
        return self._current.stream_time

    def drain(self, seconds: float) -> None:
        """Emit finished asynchronous results and cached updates, for about `seconds`."""
        self.draining.step(self._clocks.work_time, seconds)
        self.idle.note(self._clocks.steady_time())

    def note_end(self, partition: TopicPartition, end: int, *, asked: bool) -> None:
        """Note the end offset of a partition; `asked` says that `idle` has requested it."""
        if asked:
            self.idle.answer(partition, end)
        else:
            self.group.queues[partition].note_end(end)

    def hand_over(self, output: Gathered, now_ms: int) -> None:
        """Add the output of a slice to `output`; note numbers, sizes and ages of its records."""
        self._tracing.end()
        for queue in self.group.queues.values():
            queue.measure(now_ms)
        output.take(self._output, self.sinks, now_ms)

    def take_output(self) -> list[Outgoing]:
        """Return the output since the last call."""
        self._tracing.end()
        return self._output.take()

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the next offset of each partition, with its time, to commit."""
        return self._progress.positions(self.id, self.group.queues.values())

    # --- inside -----------------------------------------------------------------------------------

    def _close_idle(self) -> bool:
        """Close windows of nodes that no record reaches; return whether there were any."""
        if not self.idle.nodes:
            return False
        now = self._clocks.steady_time()
        self.idle.note(now)
        if not self.idle.ready(now):
            return False
        self._current.nowhere()
        closed = self.idle.act(now)
        self.commit_needed = self.commit_needed or closed
        return closed

    def _watch_idle(self, name: str, after_ms: int, node: IdleNode) -> None:
        # A backfill has no wall clock: its records are there already, whatever their times were.
        if not self._parts.replayable:
            self.idle.add(name, after_ms, node, self._clocks.steady_time())

    def _process_some(self, limit: int) -> int:
        # Records that are left out before the next record count as processed, too.
        self.commit_needed = True
        if self.draining.calls and self._stream_punctuation.wanted:
            # Punctuators may forward to asynchronous nodes: look for room after every record.
            limit = 1
        elif self._takes_turns and (done := self._take_turns(limit)):
            return done
        taken = self.group.take(limit)
        if taken is None:
            return 0
        queue, batch = taken
        try:
            self._enter(queue, self._tracing.begin(queue.partition, batch))
        finally:
            self._tracing.end()
        return len(batch)

    def _take_turns(self, limit: int) -> int:
        """Process records of several queues by time, while all have records; return how many.

        The streams of a join often alternate, so cost per turn matters as much as cost per record.
        """
        # The fast way for a join of two streams, or with tables. It returns 0 when it does not
        # apply; then the loop below takes the same records.
        if self._merged_turns is not None and (done := self._merged_turns.take(limit)):
            self.processed += done
            return done
        group, done = self.group, 0
        assert self._plan is not None
        while done < limit and (turn := group.turn()) is not None:
            queue, until = turn
            chunk, start, stop = queue.run(limit - done, until)
            # A slice costs more than it saves for so few records.
            if stop - start < _FEW:
                self._current.page = queue.page
                self._one_at_a_time(
                    chunk, range(start, stop), self._plan.entrances[queue.source.name].process
                )
                self.processed += stop - start
            else:
                self._enter(queue, chunk.slice(start, stop))
            done += stop - start
        return done

    def _enter(self, queue: RecordQueue, batch: Batch) -> None:
        assert self._plan is not None
        entrance = self._plan.entrances[queue.source.name]
        current = self._current
        current.page = queue.page
        # A punctuator may be due after any record, of any source.
        if entrance.batch is not None and not self._stream_punctuation.wanted:
            current.offset = batch.offsets[0]
            # Set the time for the whole batch: operators that use each record's time take records
            # one by one.
            current.stream_time = max(current.stream_time, queue.partition_time)
            entrance.batch(batch)
        else:
            self._one_at_a_time(batch, range(len(batch)), self._tracing.within(entrance.process))
        self.processed += len(batch.timestamps)

    def _one_at_a_time(
        self, batch: Batch, places: range, process: Callable[[Any, Any, int, Any], None]
    ) -> None:
        current, headers, punctuation = self._current, batch.headers, self._stream_punctuation
        page = current.page
        keys, values, timestamps, offsets = (
            batch.keys,
            batch.values,
            batch.timestamps,
            batch.offsets,
        )
        for at in places:
            timestamp = timestamps[at]
            header = () if headers is None else headers[at]
            current.offset, current.timestamp, current.headers = offsets[at], timestamp, header
            if timestamp > current.stream_time:  # noqa: PLR1730 - faster than a call, per record
                current.stream_time = timestamp
            process(keys[at], values[at], timestamp, header)
            # The record may have scheduled a first punctuator, too.
            if punctuation.wanted and punctuation.is_due(current.stream_time):
                current.nowhere()
                punctuation.punctuate(current.stream_time)
                current.page = page

    def _source(self, topic: str) -> TopicSource:
        topics, node = self._parts.topics, self._parts.topics.source_of(topic)
        of = f"source {node.name}, which reads {topic}"
        serdes = self._parts.serdes.pair(node.key, node.value, of=of)
        return TopicSource(node, topic, serdes, topics.extractor_of(topic), self._handlers)

    def _compile(self) -> Plan:
        parts, config, topics = self._parts, self._parts.config, self._parts.topics
        cached, taps = parts.stores.cached, EdgeTaps(parts.telemetry.history.samples)
        services = TaskServices(
            application_id=config.application_id,
            task_id=self.id,
            current=self._current,
            handlers=self._handlers,
            stores={}
            if self.stores is None
            else {name: self.stores.store(name) for name in self.stores.names},
            global_stores=parts.global_stores,
            wall_time=self._clocks.wall_time,
            schedule=self._schedule,
            when_idle=self._watch_idle,
            dropped=self._count_dropped,
            request_commit=self._request_commit,
            progress=self._progress,
            emissions=self.sinks.emissions,
            key_serde=parts.serdes.key,
            value_serde=parts.serdes.value,
            taps=taps,
            caches=Caches(parts.cache, cached, topics.changelog, self._current) if cached else None,
            kafka_streams_faults=config.kafka_streams_faults,
        )

        def sink(node: SinkNode) -> Sink:
            return Sink(
                node,
                topic=topics.topic,
                serdes=parts.serdes.pair(node.key, node.value, of=f"sink {node.name}"),
                output=self._output,
                sizes=topics.partitions,
                current=self._current,
                handlers=self._handlers,
                spread_each=parts.replayable,
                tracing=self._tracing,
                batch_bytes=parts.batch_bytes,
            )

        asynchronous = partial(
            in_flight_node,
            current=self._current,
            wake=self._wake,
            replayable=parts.replayable,
            window=parts.telemetry.window,
            tracing=self._tracing,
        )
        plan = Compiler(
            parts.graph(self.id),
            services,
            sink=sink,
            make_async=asynchronous,
            wrapper=config.processor_wrapper_class,
        ).compile()
        self._progress.drop_unclaimed(services.stores)
        self.idle.holders = plan.holders
        self._run = RunLength(blocking=plan.blocking)
        self.blocking = plan.blocking
        self._merged_turns = _turns_of(plan, self.group, self._current)
        taps.complete(self._merged_turns, self.sinks)
        held = plan.asynchronous, plan.caches
        self.draining = Draining(
            *held, replayable=parts.replayable, apart=parts.transactional, blocking=plan.blocking
        )
        return plan

    def _close_plan(self) -> None:
        # Remove the plan first: an error of a user's `close` must not lead to a second close.
        plan, self._plan, self.blocking = self._plan, None, False
        self.draining.drop()
        self._tracing.end()
        self._stream_punctuation.clear()
        self._wall_punctuation.clear()
        self.idle.clear()
        if plan is not None and (errors := plan.close()):
            node, error = errors[0]
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            raise StreamsError(
                f"could not close processor {node}: {error}{more}", task=self.id, node=node
            ) from error

    def _schedule(
        self,
        node: str,
        interval_ms: int,
        punctuation: str,
        callback: Callable[[int], None],
        start_ms: int | None,
    ) -> Schedule:
        clock = self._clocks.work_time

        def call(now: int) -> None:
            began = clock()
            try:
                callback(now)
            except BaseException as error:  # noqa: BLE001 - a user's code; the handler decides
                self._handlers.punctuation(node, error, now)
            self.punctuator_times.add(clock() - began)

        if punctuation == PunctuationType.STREAM_TIME:
            now = self._current.stream_time
            return self._stream_punctuation.schedule(
                interval_ms, call, start_ms or 0, anchored_at=None if start_ms is None else now
            )
        now = self._clocks.wall_time()
        first = now + interval_ms if start_ms is None else start_ms
        # The scheduler may be waiting for a later time than `first`.
        self._wake()
        return self._wall_punctuation.schedule(
            interval_ms, call, first, anchored_at=None if start_ms is None else now
        )

    def _count_dropped(self, number: int) -> None:
        self.dropped += number

    def _request_commit(self) -> None:
        self.commit_requested = True


def _turns_of(plan: Plan, group: PartitionGroup, current: RecordContextHolder) -> _Turns | None:
    """Return the way to take records of several queues in runs; None if they do not allow it."""
    if plan.tables:
        batches = {name: entrance.batch for name, entrance in plan.entrances.items()}
        return turns.TableTurns(plan.tables, batches, group, current)
    if plan.pair is not None:
        return _merged_run.MergedTurns(plan.pair, plan, group, current)
    return None
