"""Drive a topology record by record, without log and runtime."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from actors.testing import VirtualLoop
from ks_actors._errors import NotRunning, TopologyError, UnknownTopicOrPartition
from ks_actors._hints import Hinted, refuse
from ks_actors.app import refuse_running_loop
from ks_actors.config import config_of
from ks_actors.lifecycle import check_instant, check_span
from ks_actors.records import Batch, TaskId, TopicPartition
from ks_actors.task import GLOBAL, Clocks, RecordQueue, Task, TaskParts, TaskRunner, Telemetry
from ks_actors.testing._plain_store import plain_store
from ks_actors.testing._topic_serdes import topic_serdes
from ks_actors.testing._topics import AsyncTestInputTopic, TestInputTopic, TestOutputTopic
from ks_actors.testing._written_topics import WrittenTopics
from ks_actors.topology import SourceNode, check_serdes, topic_name, topology_of

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator, Mapping
    from datetime import datetime, timedelta
    from types import TracebackType

    from ks_actors.config import Keywords, StreamsConfig
    from ks_actors.dsl import StreamsBuilder
    from ks_actors.log import Outgoing
    from ks_actors.records import Headers
    from ks_actors.serdes import SerdeOrType
    from ks_actors.state import TaskStores
    from ks_actors.topology import StoreSpec, Topic, TopicOrName, Topology
    from ks_actors.tracing import Tracing

K = TypeVar("K")
V = TypeVar("V")
_IN_FLIGHT_SECONDS = 60.0


class _Driver:
    """The common part of both drivers: one task for the whole topology, one partition per topic."""

    def __init__(
        self,
        topology: Topology | StreamsBuilder,
        config: StreamsConfig | Mapping[str, Any] | str | None = None,
        *,
        initial_wall_clock_ms: int | datetime | timedelta = 0,
        tracing: Tracing | None = None,
        **settings: Unpack[Keywords],
    ) -> None:
        of = type(self).__name__
        config = config_of(topology, config, None, settings, of=of, default_id="test")
        topology = topology_of(topology, config, of=of)
        check_serdes(topology, key=config.default_key_serde, value=config.default_value_serde)
        self._topology = topology
        self._now: int = check_instant(initial_wall_clock_ms, "initial_wall_clock_ms")
        self._parts = TaskParts.of(
            topology,
            config,
            clocks=Clocks(lambda: self._now, lambda: self._now),
            partitions=lambda _: 1,
            nodes=self._nodes,
            telemetry=Telemetry(tracing=tracing),
        )
        self._topics = self._parts.topics
        self._written = WrittenTopics(self._topics)
        self._ends: dict[str, int] = {}
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._runners: list[TaskRunner] = []
        self._task: Task | None = None
        self._globals: Task | None = None
        self._closed: bool = False
        self._failure: BaseException | None = None

    # --- input and output -------------------------------------------------------------------------

    def advance(self, ms: int | timedelta) -> None:
        """Move the wall clock without calling punctuators."""
        by = check_span(ms, "the time to advance the clock")
        if by < 0:
            raise ValueError(f"cannot advance the clock by {by} ms: time does not go back")
        self._now += by

    def _start_of(self, given: int | datetime | timedelta | None) -> int:
        return self._now if given is None else check_instant(given, "start_timestamp_ms")

    @property
    def wall_clock_ms(self) -> int:
        """The wall clock, which only the test moves."""
        return self._now

    def metrics(self) -> dict[str, int]:
        """Return the counts of the task: `process-total`, `dropped-records-total`."""
        tasks = [task for task in (self._task, self._globals) if task is not None]
        return {
            "process-total": sum(task.processed for task in tasks),
            "dropped-records-total": sum(task.dropped for task in tasks),
        }

    def produced_topics(self) -> frozenset[str]:
        """Return the topics with output."""
        return self._written.names()

    def get_state_store(self, name: str) -> Any:
        """Return a store by name, as a processor has it.

        The values of a store with timestamps are ValueAndTimestamps. Raises KeyError when the
        topology has no store of that name.
        """
        for stores in self._open:
            if name in stores.names:
                return stores.store(name)
        known = ", ".join(sorted(name for stores in self._open for name in stores.names)) or "none"
        raise KeyError(f"the topology has no store {name!r}; it has {known}")

    def get_key_value_store(self, name: str) -> Any:
        """Return a store by name, with values alone, as `App.store` reads them.

        A put writes the timestamp -1 if the store has timestamps. Raises KeyError when the topology
        has no store of that name.
        """
        store, topology = self.get_state_store(name), self._topology
        return plain_store(store, (topology.stores.get(name) or topology.global_stores[name]).kind)

    get_window_store = get_key_value_store
    get_session_store = get_key_value_store
    get_timestamped_key_value_store = get_state_store
    get_timestamped_window_store = get_state_store
    get_timestamped_key_value_store_with_headers = get_state_store
    get_timestamped_window_store_with_headers = get_state_store
    get_session_store_with_headers = get_state_store

    def take(self, topic: str) -> tuple[bytes | None, bytes | None, int, Headers] | None:
        """Return a topic's oldest unread record, serialized: key, value, timestamp, headers.

        Raises UnknownTopicOrPartition for a topic that the topology does not write.
        """
        return self._written.take(topic)

    def count(self, topic: str) -> int:
        """Return the number of unread records of a topic.

        Raises UnknownTopicOrPartition for a topic that the topology does not write.
        """
        return self._written.count(topic)

    @overload
    def create_output_topic(
        self,
        name: Topic[K, V],
        key: SerdeOrType[K] | None = None,
        value: SerdeOrType[V] | None = None,
    ) -> TestOutputTopic[K, V]: ...
    @overload
    def create_output_topic(
        self,
        name: str,
        key: SerdeOrType[K],
        value: SerdeOrType[V],
    ) -> TestOutputTopic[K, V]: ...
    @overload
    def create_output_topic(
        self,
        name: str,
        key: None = None,
        value: None = None,
    ) -> TestOutputTopic[Any, Any]: ...
    def create_output_topic(
        self,
        name: TopicOrName,
        key: SerdeOrType[Any] | None = None,
        value: SerdeOrType[Any] | None = None,
    ) -> TestOutputTopic[Any, Any]:
        """Return a topic, which may be a changelog, to read records from, each once.

        A serde that is not given is the Topic's, or else the topology's for the topic. Reading
        raises UnknownTopicOrPartition when the topology does not write the topic.
        """
        return TestOutputTopic(*self._serdes(name, key, value), self)

    @property
    def _open(self) -> list[TaskStores]:
        return [runner.stores for runner in self._runners if runner.stores is not None]

    # --- inside -----------------------------------------------------------------------------------

    def _serdes(self, topic: TopicOrName, key: Any, value: Any) -> tuple[str, Any, Any]:
        """Return the name and the serdes of a topic. Raises TopologyError for an unknown serde."""
        name = topic_name(topic)
        found = topic_serdes(self._topology, self._topics.config, topic, key, value)
        if None in found:
            raise TopologyError(
                f"the {'key' if found[0] is None else 'value'} serde of topic {name!r} is unknown: "
                "the topology has none for it, so give types, such as "
                f"create_output_topic({name!r}, str, int)"
            )
        return name, *found

    def _start(self) -> None:
        """Start; when that fails, leave nothing open, and nothing on disk."""
        try:
            self._begin()
        except BaseException:
            # Leave the processors unclosed: it is unknown which of them are initialized.
            self._task = self._globals = None
            self._stop()
            raise

    def _begin(self) -> None:
        self._directory = tempfile.TemporaryDirectory(
            prefix="ks-actors-test-", ignore_cleanup_errors=True
        )
        topology = self._topology
        if topology.global_topics:
            self._globals = self._begin_task(
                TaskId(-1, 0), GLOBAL, topology.global_stores, topology.global_topics
            )
            self._runners[0].share_stores()
        self._task = self._begin_task(
            TaskId(0, 0), "0_0", topology.stores, self._topics.source_topics
        )
        for runner in self._runners:
            runner.note_empty()

    def _begin_task(
        self, task: TaskId, name: str, specs: Mapping[str, StoreSpec], topics: Iterable[str]
    ) -> Task:
        assert self._directory is not None
        runner = TaskRunner(task, name, self._parts, wait_s=_IN_FLIGHT_SECONDS)
        self._runners.append(runner)
        return runner.start(
            self._parts.stores.complete(specs),
            {TopicPartition(topic, 0): 0 for topic in topics},
            directory=Path(self._directory.name),
            shared=None,
        )

    def _nodes(self, task: TaskId) -> Iterable[str]:
        topology = self._topology
        if task.subtopology < 0:
            return [
                name
                for store in topology.global_topics.values()
                for name in (store.source, store.processor)
            ]
        tasks = {name for subtopology in topology.subtopologies() for name in subtopology.nodes}
        return [name for name in topology.nodes if name in tasks]

    async def _pipe(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        self._add(self._topics.topic(topic), key, value, timestamp, headers)
        with self._showing_letters():
            await self._complete()

    def _add(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        task = self._running()
        _check_headers(headers)
        partition = TopicPartition(topic, 0)
        self._match(task, topic)
        offset = self._ends.get(topic, 0)
        self._ends[topic] = offset + 1
        batch = Batch([key], [value], [timestamp], [headers] if headers else None, (offset,))
        if partition in task.group.queues:
            task.add(partition, batch, offset + 1, offset + 1)
        elif self._globals is not None and partition in self._globals.group.queues:
            self._globals.add(partition, batch, offset + 1, offset + 1)
        else:
            topics = sorted({*self._topics.source_topics, *self._topology.global_topics})
            patterns = [
                f"topics that match {node.pattern.pattern!r}"
                for node in self._topology.nodes.values()
                if isinstance(node, SourceNode) and node.pattern is not None
            ]
            raise UnknownTopicOrPartition(
                f"the topology does not read topic {topic!r}; it reads "
                f"{', '.join([*topics, *patterns])}"
            )

    def _match(self, task: Task, topic: str) -> None:
        """Let the task read a topic that a pattern matches, from the first record on."""
        partition = TopicPartition(topic, 0)
        if partition in task.group.queues or not self._topics.matching([topic]):
            return
        self._topics.know_topics(dict.fromkeys((*self._topics.matched, topic), 1))
        task.group.add(RecordQueue(partition, task._source(topic), 0))
        task.add(partition, Batch([], [], [], None, ()), 0, 0)

    async def _complete(self) -> None:
        """Process all records, and their results; then commit."""
        self._running()
        for runner in self._runners:
            each = runner.task
            while True:
                self._route(each.take_output())
                if each.can_drain:
                    each.drain(inf)
                elif not (each.process_one() or self._told_ends(each)):
                    # Decisions about unreadable records may have written dead letters.
                    if letters := each.take_output():
                        self._route(letters)
                        continue
                    if each.drained:
                        break
                    await runner.wait()
        self._commit()

    def _told_ends(self, task: Task) -> bool:
        """Give a task the end offsets of its topics if it has requested them."""
        if not task.idle.asks:
            return False
        task.idle.asked(self._now)
        for partition in task.group.queues:
            task.note_end(partition, self._ends.get(partition.topic, 0), asked=True)
        return True

    async def _punctuate(self) -> None:
        task = self._running()
        with self._showing_letters():
            task.punctuate(self._now)
            self._route(task.take_output())
            await self._complete()

    @contextmanager
    def _showing_letters(self) -> Iterator[None]:
        """Show the dead letters of a record that ends a task, if an app would write them.

        With exactly-once, an app aborts the dead letters of tasks.
        """
        try:
            yield
        except BaseException as error:
            for each in (self._globals, None if self._parts.transactional else self._task):
                if each is not None:
                    self._route(each.parting.take())
            self._failure = error
            raise

    def _route(self, written: Iterable[Outgoing]) -> None:
        """Keep the output, and feed it back where the topology reads it."""
        task = self._running()
        for outgoing in written:
            topic, batch = outgoing.partition.topic, outgoing.batch
            self._match(task, topic)
            headers = batch.headers or [()] * len(batch)
            fed = (
                TopicPartition(topic, 0) in task.group.queues
                or topic in self._topology.global_topics
            )
            records = list(zip(batch.keys, batch.values, batch.timestamps, headers, strict=True))
            self._written.add(topic, records)
            if fed:
                for record in records:
                    self._add(topic, *record)

    def _commit(self) -> None:
        for stores in self._open:
            token = stores.freeze()
            for name, batch in stores.changelog(token):
                topic = self._topics.changelog(name)
                headers = batch.headers or [()] * len(batch)
                self._written.add(
                    topic, zip(batch.keys, batch.values, batch.timestamps, headers, strict=True)
                )
            stores.publish(token, {})

    def _running(self) -> Task:
        if self._task is None:
            raise NotRunning(
                "the driver is closed"
                if self._closed
                else "the driver is not open: use it as `with TopologyTestDriver(...) as driver:`"
            )
        if self._failure is not None:
            raise NotRunning(
                "an earlier call of the driver has raised an error, which leaves its task in the "
                "middle of a record: make a new driver"
            ) from self._failure
        return self._task

    def _stop(self) -> None:
        self._closed = True
        task, self._task = self._task, None
        globals_, self._globals = self._globals, None
        try:
            for each in (task, globals_):
                if each is not None:
                    each.close()
        finally:
            for runner in self._runners:
                runner.close_stores(clean=False)
            self._runners.clear()
            if self._directory is not None:
                self._directory.cleanup()


def _check_headers(headers: object) -> None:
    pairs = headers if isinstance(headers, list | tuple) else None
    if pairs is None or not all(
        isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)  # noqa: PLR2004 - a pair
        for pair in pairs
    ):
        raise TypeError(f"headers are {headers!r}: give pairs of a name and bytes, as a tuple")


class TopologyTestDriver(_Driver, metaclass=Hinted):
    """Drive a topology from a test, synchronously.

    After a record has been piped in, everything that it causes has happened. There is one task for
    the whole topology and one partition per topic. A topic that a pattern matches is read from its
    first record on. Repartition topics, and all others that the topology both writes and reads, are
    fed back. Of several waiting records, the record with the smallest timestamp comes first. The
    wall clock stands still unless it is advanced; stream time comes from the records. Records are
    processed by the code of the runtime. Asynchronous processors run on the driver's own loop in
    virtual time. Where a loop runs already, use `AsyncTopologyTestDriver`.

    The driver takes a StreamsBuilder or its topology, and a config in the forms of `App`;
    `application_id` defaults to "test". Stores are real stores, in a temporary directory. Closing
    the driver removes everything. After a call has raised an error, the driver can only be closed.
    """

    def __init__(
        self,
        topology: Topology | StreamsBuilder,
        config: StreamsConfig | Mapping[str, Any] | str | None = None,
        *,
        initial_wall_clock_ms: int | datetime | timedelta = 0,
        tracing: Tracing | None = None,
        **settings: Unpack[Keywords],
    ) -> None:
        super().__init__(
            topology,
            config,
            initial_wall_clock_ms=initial_wall_clock_ms,
            tracing=tracing,
            **settings,
        )
        self._loop: VirtualLoop | None = None

    if not TYPE_CHECKING:
        __aenter__ = __aexit__ = refuse(
            "is entered by `with`; AsyncTopologyTestDriver by `async with`"
        )

    def __enter__(self) -> Self:
        try:
            self._run(self._enter())
        except BaseException:
            if self._loop is not None:
                self._loop.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @overload
    def create_input_topic(
        self,
        name: Topic[K, V],
        key: SerdeOrType[K] | None = None,
        value: SerdeOrType[V] | None = None,
        *,
        start_timestamp_ms: int | datetime | timedelta | None = None,
        auto_advance_ms: int | timedelta = 0,
    ) -> TestInputTopic[K, V]: ...
    @overload
    def create_input_topic(
        self,
        name: str,
        key: SerdeOrType[K],
        value: SerdeOrType[V],
        *,
        start_timestamp_ms: int | datetime | timedelta | None = None,
        auto_advance_ms: int | timedelta = 0,
    ) -> TestInputTopic[K, V]: ...
    @overload
    def create_input_topic(
        self,
        name: str,
        key: None = None,
        value: None = None,
        *,
        start_timestamp_ms: int | datetime | timedelta | None = None,
        auto_advance_ms: int | timedelta = 0,
    ) -> TestInputTopic[Any, Any]: ...
    def create_input_topic(
        self,
        name: TopicOrName,
        key: SerdeOrType[Any] | None = None,
        value: SerdeOrType[Any] | None = None,
        *,
        start_timestamp_ms: int | datetime | timedelta | None = None,
        auto_advance_ms: int | timedelta = 0,
    ) -> TestInputTopic[Any, Any]:
        """Return a topic to pipe records into.

        A serde that is not given is the Topic's, or else the topology's for the topic. Records
        without a timestamp get the start (default: the wall clock), which then advances.
        """
        start = self._start_of(start_timestamp_ms)
        of_topic = self._serdes(name, key, value)
        return TestInputTopic(*of_topic, self._pipe_now, start, auto_advance_ms)

    def advance_wall_clock_time(self, ms: int | timedelta) -> None:
        """Move the wall clock, and call the punctuators that are due by then, each once."""
        self.advance(ms)
        self._run(self._punctuate())

    def close(self) -> None:
        """Close processors and stores; may be called twice."""
        if not self._closed:
            self._run(self._exit())
            if self._loop is not None:
                self._loop.close()

    async def _enter(self) -> None:
        self._start()

    async def _exit(self) -> None:
        self._stop()

    def _pipe_now(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        self._run(self._pipe(topic, key, value, timestamp, headers))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work: on a loop if there are asynchronous processors; other work never waits."""
        # Sinks and sources have no operator.
        operators = (getattr(node, "operator", None) for node in self._topology.nodes.values())
        if any(operator is not None and operator.asynchronous for operator in operators):
            try:
                refuse_running_loop(
                    of="TopologyTestDriver, with asynchronous processors,",
                    remedy="use AsyncTopologyTestDriver",
                )
            except BaseException:
                work.close()
                raise
            if self._loop is None:
                self._loop = VirtualLoop()
            self._loop.run_until_complete(work)
            return
        try:
            # One step without a loop: nothing in this work waits, so it runs to its end.
            work.send(None)
        except StopIteration:
            return
        raise AssertionError(
            "this driver has no asynchronous processors, so there is nothing to wait for"
        )


class AsyncTopologyTestDriver(_Driver, metaclass=Hinted):
    """The `TopologyTestDriver` for coroutines.

    Calls that process are awaited, and asynchronous processors run on the current loop.
    """

    if not TYPE_CHECKING:
        __enter__ = __exit__ = refuse("is entered by `async with`; TopologyTestDriver by `with`")

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    @overload
    def create_input_topic(
        self,
        name: Topic[K, V],
        key: SerdeOrType[K] | None = None,
        value: SerdeOrType[V] | None = None,
        *,
        start_timestamp_ms: int | datetime | timedelta | None = None,
        auto_advance_ms: int | timedelta = 0,
    ) -> AsyncTestInputTopic[K, V]: ...
    @overload
    def create_input_topic(
        self,
        name: str,
        key: SerdeOrType[K],
        value: SerdeOrType[V],
        *,
        start_timestamp_ms: int | datetime | timedelta | None = None,
        auto_advance_ms: int | timedelta = 0,
    ) -> AsyncTestInputTopic[K, V]: ...
    @overload
    def create_input_topic(
        self,
        name: str,
        key: None = None,
        value: None = None,
        *,
        start_timestamp_ms: int | datetime | timedelta | None = None,
        auto_advance_ms: int | timedelta = 0,
    ) -> AsyncTestInputTopic[Any, Any]: ...
    def create_input_topic(
        self,
        name: TopicOrName,
        key: SerdeOrType[Any] | None = None,
        value: SerdeOrType[Any] | None = None,
        *,
        start_timestamp_ms: int | datetime | timedelta | None = None,
        auto_advance_ms: int | timedelta = 0,
    ) -> AsyncTestInputTopic[Any, Any]:
        """Return a topic to pipe records into; its calls that process are to be awaited.

        A serde that is not given is the Topic's, or else the topology's for the topic. Records
        without a timestamp get the start (default: the wall clock), which then advances.
        """
        start = self._start_of(start_timestamp_ms)
        of_topic = self._serdes(name, key, value)
        return AsyncTestInputTopic(*of_topic, self._pipe, start, auto_advance_ms)

    async def pipe_input(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | datetime | timedelta | None = None,
        headers: Headers = (),
    ) -> None:
        """Process one serialized record, and everything that it causes.

        The timestamp defaults to the wall clock.
        """
        time = self._now if timestamp_ms is None else check_instant(timestamp_ms, "timestamp_ms")
        await self._pipe(topic, key, value, time, headers)

    async def advance_wall_clock_time(self, ms: int | timedelta) -> None:
        """Move the wall clock, and call the punctuators that are due by then, each once."""
        self.advance(ms)
        await self._punctuate()

    async def aclose(self) -> None:
        """Close processors and stores; may be called twice."""
        if not self._closed:
            self._stop()
