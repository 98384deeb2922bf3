"""A harness for whole apps: the runtime, under the actor test kit, on an embedded log."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import uuid
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from ks_actors._errors import NotRunning, TaskTimeout
from ks_actors._hints import Hinted, refuse
from ks_actors.app import App
from ks_actors.config import config_of
from ks_actors.lifecycle import check_instant, check_timeout
from ks_actors.log import IsolationLevel, NewTopic
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.runtime.shared import InstanceState, shut_down, write_process_id
from ks_actors.testing._app_kit import AppKit
from ks_actors.testing._connection import Connection
from ks_actors.testing._disk import copy_as_is
from ks_actors.testing._log_topics import LogTopics
from ks_actors.testing._topics import TestRecord
from ks_actors.topology import by_name, topology_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime, timedelta
    from types import TracebackType

    from ks_actors.assignment import PartitionGrouper, TaskAssignor
    from ks_actors.config import Keywords, Options, StreamsConfig
    from ks_actors.dsl import StreamsBuilder
    from ks_actors.log import TopicPartition
    from ks_actors.log.embedded import Operation
    from ks_actors.records import Batch, Headers, TaskId
    from ks_actors.runtime import RestoreListener, StandbyUpdateListener, UncaughtHandler
    from ks_actors.runtime.membership import MemberStatus
    from ks_actors.serdes import SerdeOrType
    from ks_actors.topology import ByTopic, TopicOrName, Topology
    from ks_actors.tracing import Tracing

_LOOK_AGAIN = 0.02
_ENDS = {InstanceState.NOT_RUNNING, InstanceState.ERROR}


class _World:
    """The state that the instances of one test share."""

    def __init__(
        self, kit: AppKit, log: EmbeddedLog | None, topics: ByTopic[int | NewTopic]
    ) -> None:
        self.kit: AppKit = kit
        self.log: EmbeddedLog = log if log is not None else EmbeddedLog(clock=kit.wall_time_ms)
        self.given: bool = log is not None
        self.topics: dict[str, int | NewTopic] = by_name(topics)
        self.harnesses: list[AppHarness] = []
        self.expiries: list[asyncio.TimerHandle] = []
        self.client_id: str = ""
        self.instances: int = 1


class AppHarness(metaclass=Hinted):
    """Run an app on an embedded log in virtual time; crash it, and break its environment.

    `seed` chooses the schedule. Use it by `async with`, on a `VirtualLoop`: see `run_app`. `topics`
    are created first: the number of partitions by name. `config` and settings are the app's
    (`application_id` defaults to "app"), the other options are those of `App`. The app runs inside
    the block, unless `start` is False. Leaving the block closes it, and raises the error that ended
    it unless `ended` has returned that. State is in a temporary directory, and the log in memory,
    unless `state_dir` or `embedded`, a started log, are given. Each app of the harness, also after
    a `restart`, enters the same `services`.

    The app runs as in production. It calls the log through a connection that `crash` cuts, blocking
    jobs run in the loop's thread, and time advances when nothing else can happen. The same seed
    gives the same run.
    """

    def __init__(
        self,
        topology: Topology | StreamsBuilder,
        config: StreamsConfig | Mapping[str, Any] | str | None = None,
        *,
        seed: int = 0,
        topics: ByTopic[int | NewTopic] | None = None,
        embedded: EmbeddedLog | None = None,
        start: bool = True,
        wall_clock_ms: int | datetime | timedelta = 0,
        on_state: Callable[[InstanceState, InstanceState], None] | None = None,
        restore_listener: RestoreListener | None = None,
        standby_listener: StandbyUpdateListener | None = None,
        uncaught_handler: UncaughtHandler = shut_down,
        task_priority: Callable[[TaskId], int] | None = None,
        assignor: TaskAssignor | None = None,
        grouper: PartitionGrouper | None = None,
        services: Iterable[AbstractAsyncContextManager[Any]] = (),
        tracing: Tracing | None = None,
        **settings: Unpack[Keywords],
    ) -> None:
        # Keep the config as given: the harness sets the state directory unless the config names it.
        of = "AppHarness"
        self._config = config_of(topology, config, None, settings, of=of, default_id="app")
        self._names_state_dir: bool = self._config.origins["state_dir"] != "default"
        self._topology = topology_of(topology, self._config, of=of)
        self._options: dict[str, Any] = {
            "on_state": on_state,
            "restore_listener": restore_listener,
            "standby_listener": standby_listener,
            "uncaught_handler": uncaught_handler,
            "task_priority": task_priority,
            "assignor": assignor,
            "grouper": grouper,
            "services": tuple(services),
            "tracing": tracing,
        }
        self._start_at_once: bool = start
        wall_clock_ms = check_instant(wall_clock_ms, "wall_clock_ms")
        kit = AppKit(seed=seed, wall_clock_ms=wall_clock_ms)
        self._world: _World = _World(kit, embedded, topics or {})
        self._shares: bool = False
        self._stack: AsyncExitStack = AsyncExitStack()
        self._connection: Connection | None = None
        self._app: App | None = None
        self._reported: Exception | None = None
        self._topics: LogTopics = LogTopics(self._world.log, lambda: (self._topology, self.config))
        self.config: StreamsConfig = self._config
        self._world.client_id = self.config.client_id

    if not TYPE_CHECKING:
        __enter__ = __exit__ = refuse("is entered by `async with`; run_app(…) makes a loop")

    # --- the block --------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            if not self._shares:
                await self._make_world(stack)
            if not self._names_state_dir:
                directory = stack.enter_context(
                    tempfile.TemporaryDirectory(
                        prefix="ks-actors-test-", ignore_cleanup_errors=True
                    )
                )
                self.config = self.config.replace(state_dir=Path(directory))
            self._world.harnesses.append(self)
            stack.push_async_exit(self._leave)
            if self._start_at_once:
                await self.start()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, traceback)

    async def _make_world(self, stack: AsyncExitStack) -> None:
        world = self._world
        await stack.enter_async_context(world.kit)
        if not world.given:
            await stack.enter_async_context(world.log)
        await world.log.create_topics(
            [
                each if isinstance(each, NewTopic) else NewTopic(name, each)
                for name, each in world.topics.items()
            ]
        )

    async def _leave(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        del kind, traceback
        self._world.harnesses.remove(self)
        try:
            await self.close()
        except Exception as failure:
            if error is None and failure is not self._reported:
                raise
        finally:
            if not self._shares:
                for timer in self._world.expiries:
                    timer.cancel()

    def another(
        self,
        topology: Topology | StreamsBuilder | None = None,
        *,
        start: bool = True,
        **config: Unpack[Options],
    ) -> AppHarness:
        """Return one more instance of the app, on the same log, with its own state directory.

        Enter it by `async with`. It runs another version of the app if a `topology` is given. Its
        default `client_id` is that of the first instance with a number, from `-2` on.
        """
        world = self._world
        world.instances += 1
        changed: Options = {"client_id": f"{world.client_id}-{world.instances}", **config}
        other = AppHarness(topology or self._topology, self._config.replace(**changed), start=start)
        other._names_state_dir = "state_dir" in config
        other._world = world
        other._topics = LogTopics(world.log, lambda: (other._topology, other.config))
        other._options = self._options
        other._shares = True
        return other

    # --- life -------------------------------------------------------------------------------------

    @property
    def app(self) -> App:
        """The app. Raises NotRunning before the start, and after a crash."""
        if self._app is None:
            raise NotRunning("no app is running: start it, or restart it")
        return self._app

    @property
    def kit(self) -> AppKit:
        """The actor system, with the clock and the seed."""
        return self._world.kit

    @property
    def log(self) -> EmbeddedLog:
        """The log."""
        return self._world.log

    @property
    def state_dir(self) -> Path:
        """The state directory of the app."""
        return self.config.state_dir / self.config.application_id

    async def start(self) -> None:
        """Start the app; after `close` or `crash` a new one, with the same config.

        Raises the error of a failed start.
        """
        if self._app is not None and self._app.state not in _ENDS:
            raise NotRunning("the app is already running")
        # The process id comes from the seed, so that a run can be repeated.
        write_process_id(self.state_dir, str(uuid.UUID(int=self.kit.random.getrandbits(128))))
        self._connection = connection = Connection(self.log)
        self._app = app = App(
            self._topology, self.config, log=connection, system=self.kit, **self._options
        )
        await app.start()

    async def close(self, *, leave_group: bool = False) -> None:
        """Close the app as `App.close` does; does nothing without one."""
        app, self._app = self._app, None
        if app is not None:
            await app.close(leave_group=leave_group)

    async def ended(self, timeout_ms: int | timedelta = 600_000) -> Exception | None:
        """Wait until the app ends by itself, close it, and return the error that ended it.

        That error is not raised again at the end of the block. Raises TaskTimeout when the app does
        not end.
        """
        timeout_ms = check_timeout(timeout_ms)
        app = self.app
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                with suppress(Exception):  # it is returned
                    await app.run()
        except TimeoutError as late:
            raise TaskTimeout(
                f"the app still runs after {timeout_ms} ms, though its end was expected"
            ) from late
        self._reported = app.error
        return app.error

    async def crash(self) -> None:
        """End the app as if its process had died: nothing is committed, written or sent.

        Its transaction stays open until the next instance with its transactional id, or until its
        timeout. The group notices at the session timeout. The disk keeps the content of files at
        this moment. Async processors are cancelled, processors are not closed, services are exited.
        """
        app, connection = self.app, self._connection
        assert connection is not None
        assert app._instance is not None
        self._app = None
        connection.cut()
        image = self.config.state_dir / "crashed"
        # Copy before the actors end: their end may still write to the disk.
        copy_as_is(self.state_dir, image)
        for task in app._metrics.tasks.values():
            task.abandon()
        if app._ref is not None:
            context = app._instance.ctx
            for child in context.children:
                context.kill(child)
            await self.kit.kill(app._ref)
        await app._reach.__aexit__()
        await app._services.aclose()
        await app._app_topics.close(at_once=True)
        await connection.reap()
        shutil.rmtree(self.state_dir)
        image.rename(self.state_dir)
        later = asyncio.get_running_loop().call_later
        for each in connection.memberships:
            expiry = later(self.config.session_timeout_ms / 1000, self.log.expire, each)
            self._world.expiries.append(expiry)

    async def restart(
        self, topology: Topology | StreamsBuilder | None = None, **config: Unpack[Options]
    ) -> None:
        """Start a new app on the same log and disk, after a crash, an end or a close.

        An app that runs is closed first. A `topology` or `config` is that of the next version of
        the app; it replaces the harness's own.
        """
        self._config, self.config = self._config.replace(**config), self.config.replace(**config)
        if topology is not None:
            self._topology = topology_of(topology, self.config, of="AppHarness")
        if self._app is not None and self._app.state not in _ENDS:
            await self.close()
        await self.start()

    def wipe_state(self) -> None:
        """Delete the app's state on disk. Raises NotRunning while it runs."""
        if self._app is not None and self._app.state not in _ENDS:
            raise NotRunning("the app still uses its state: close it, or crash it")
        shutil.rmtree(self.state_dir, ignore_errors=True)

    # --- faults -----------------------------------------------------------------------------------

    def fail(
        self, operation: Operation, error: Exception, times: int = 1, *, after: bool = False
    ) -> None:
        """Make the next `times` calls of a log operation raise `error`.

        A fetch that is already waiting for records is the next call. With `after`, which only
        `send`, `commit`, `abort` and `commit_offsets` accept, the calls raise it after the
        operation. The harness's own calls do not fail.
        """
        self.log.inject(operation, error, times, after=after)

    def lose_membership(self) -> None:
        """Remove the app from its group, as if its session had timed out."""
        connection = self._connection
        if connection is not None:
            for membership in connection.memberships[-1:]:
                self.log.expire(membership)

    async def add_worker(self) -> str | None:
        """Do the same as `App.add_worker`."""
        return await self.app.add_worker()

    async def remove_worker(self, timeout_ms: int | timedelta = 60_000) -> str | None:
        """Do the same as `App.remove_worker`."""
        return await self.app.remove_worker(timeout_ms)

    async def caught_up(self, timeout_ms: int | timedelta = 600_000) -> None:
        """Wait until all records of the source topics are processed and committed, by any instance.

        Several instances have their tasks then. Raises TaskTimeout, and the error that ends an app.
        """
        timeout_ms, loop = check_timeout(timeout_ms), asyncio.get_running_loop()
        deadline, before = loop.time() + timeout_ms / 1000, None
        while True:
            for harness in self._world.harnesses:
                app = harness._app
                if app is not None:
                    await app._wait_until_caught_up(
                        max(0, int((deadline - loop.time()) * 1000)), app._local_lag
                    )
            behind, tasks = await self._lag(), _tasks_of(self._world.harnesses)
            if not behind and tasks == before:
                return
            before = tasks
            if loop.time() >= deadline:
                raise TaskTimeout(f"not caught up within {timeout_ms} ms: {behind}")
            await asyncio.sleep(_LOOK_AGAIN)

    async def _lag(self) -> str:
        versions = [
            (each._topology, each.config)
            for each in self._world.harnesses
            if each is self or each._app is not None
        ]
        return await self._topics.behind(versions)

    async def _batches(
        self, partition: TopicPartition, position: int, isolation: IsolationLevel
    ) -> list[Batch]:
        return await self._topics.batches(partition, position, isolation)

    async def turns(self, number: int) -> None:
        """Let the event loop run `number` iterations; no time passes."""
        for _ in range(number):
            await asyncio.sleep(0)

    # --- topics -----------------------------------------------------------------------------------

    def create_topics(self, topics: ByTopic[int | NewTopic]) -> None:
        """Create topics: the number of partitions by name. Raises TopicExists."""
        self._topics.create(topics)

    def create_partitions(self, counts: ByTopic[int]) -> None:
        """Give topics more partitions: the new numbers by name.

        Raises UnknownTopicOrPartition, and LogError for a number that is not larger.
        """
        self._topics.grow(counts)

    def delete_topics(self, *names: TopicOrName) -> None:
        """Delete topics. Raises UnknownTopicOrPartition."""
        self._topics.delete(names)

    # --- records ----------------------------------------------------------------------------------

    async def produce(
        self,
        topic: TopicOrName,
        key: Any,
        value: Any,
        timestamp: int | datetime | timedelta | None = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Write a record, with the Topic's serdes, the topology's, or the app's default serdes.

        Bytes and None are written unchanged. The timestamp defaults to the wall clock.
        """
        time = (
            self.kit.wall_time_ms()
            if timestamp is None
            else check_instant(timestamp, "the timestamp of a record")
        )
        await self.produce_all(topic, [TestRecord(key, value, time, headers)], partition=partition)

    async def produce_all(
        self,
        topic: TopicOrName,
        records: Iterable[TestRecord[Any, Any]],
        *,
        partition: int | None = None,
    ) -> None:
        """Write records; those of one partition are one batch."""
        await self._topics.produce(topic, records, partition)

    async def read(
        self,
        topic: TopicOrName,
        key: SerdeOrType[Any] | None = None,
        value: SerdeOrType[Any] | None = None,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> list[TestRecord[Any, Any]]:
        """Return all records of a topic, partition by partition.

        The serdes default to those of the Topic, then of the topology, then of the app's config.
        Without serdes, as in changelogs and dead letters, keys and values are bytes.
        """
        return await self._topics.read(topic, key, value, isolation)


def _tasks_of(harnesses: Iterable[AppHarness]) -> list[MemberStatus] | None:
    """Return the tasks of each instance, and those on their way; None unless several run."""
    parts = [each._app._parts for each in harnesses if each._app is not None]
    found = [one.member.status() for one in parts if one is not None]
    return found if len(found) > 1 else None
