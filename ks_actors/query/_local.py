"""The lookup of stores on this instance."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ks_actors._errors import FailureReason, NotRunning, QueryFailed, StoreClosed, UnknownStore
from ks_actors.log import IsolationLevel
from ks_actors.query._position import Position
from ks_actors.records import TaskId
from ks_actors.records import partition as partition_of
from ks_actors.runtime.globals import GLOBAL_TASK
from ks_actors.runtime.shared import InstanceState
from ks_actors.serdes import may_be_same, with_default
from ks_actors.state import reader_of
from ks_actors.task import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.config import StreamsConfig
    from ks_actors.serdes import Serde
    from ks_actors.state import AnyReader, At
    from ks_actors.task import AppTopics, Clocks, RegisteredStores, StoreRegistry
    from ks_actors.topology import StoreSpec, Topology

T = TypeVar("T")
_NOWHERE = -2


class Part:
    """One partition of a store on this instance: read it only by `at`, or after `check`."""

    __slots__ = ("_local", "_registered", "partition", "reader")

    def __init__(self, local: LocalStores, registered: RegisteredStores, reader: AnyReader) -> None:
        self.partition: int = registered.task.partition
        self.reader: Any = reader
        self._local = local
        self._registered = registered

    @property
    def in_thread(self) -> bool:
        """Whether a thread processes the task; then a read has to wait for the end of a slice."""
        task = self._registered.processing
        return task is not None and task.blocking

    @property
    def active(self) -> bool:
        """Whether the store is up to date."""
        return self._registered.role is Role.ACTIVE

    @property
    def role(self) -> Role:
        """The role of the task's stores."""
        return self._registered.role

    def check(self) -> None:
        """Raise QueryFailed, or NotRunning, when the store is no longer here."""
        self._local.check_running()
        registered = self._local.registered(self._registered.task)
        if registered is None or registered.stores is not self._registered.stores:
            # The task may also have come back with other stores: this reader belongs to the old
            # stores.
            raise self.gone()
        self._registered = registered  # a restored task may be active by now, with the same stores

    def gone(self) -> QueryFailed:
        """Return the error for a store that is no longer here."""
        name = self.reader.name
        return QueryFailed(
            f"partition {self.partition} of store {name} has left this instance, or is moving: try "
            "again, or ask another instance",
            reason=FailureReason.NOT_PRESENT,
            store=name,
            partition=self.partition,
        )

    def position(self, *, committed: bool) -> Position:
        """Return the input position at the store's last change."""
        return _position(self._registered.position(self.reader.name, committed=committed))

    def reached(self, *, committed: bool) -> Position:
        """Return the input position that the store has seen, even without a change."""
        return _position(self._registered.reached(self.reader.name, committed=committed))

    async def at(self, read: Callable[[AnyReader], T], timeout_ms: int) -> T:
        """Return the result of `read`: at once or, if a thread has the task, when it returns.

        Raises QueryFailed when that takes too long.
        """
        self.check()
        task = self._registered.processing
        # No thread has the task, and nothing is awaited here, so nothing can change during the
        # read.
        if task is None or task.thread_guard.since is None:
            return self.read(read)
        found: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def visit() -> None:
            # Timed out or cancelled; the thread guard may still call this once.
            if found.done():
                return
            try:
                # Check again: the task may have moved away while the query waited.
                self.check()
                found.set_result(self.read(read))
            except Exception as error:  # noqa: BLE001 - told to whoever asks
                found.set_exception(error)

        task.thread_guard.on_return.append(visit)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await found
        except TimeoutError as late:
            raise QueryFailed(
                f"store {self.reader.name}: task {self._registered.task} is in a thread, which did "
                f"not return within {timeout_ms} ms",
                reason=FailureReason.STORE_EXCEPTION,
                store=self.reader.name,
                partition=self.partition,
            ) from late
        finally:
            # After a timeout, or when cancelled, the visit must not run any more.
            if visit in task.thread_guard.on_return:
                task.thread_guard.on_return.remove(visit)

    def read(self, read: Callable[[AnyReader], T]) -> T:
        """Return the result of `read` now; raises QueryFailed when the store is closed."""
        try:
            return read(self.reader)
        except StoreClosed as closed:
            # The stores were closed between two rows of a scan.
            raise self.gone() from closed


def _position(at: At) -> Position:
    offsets: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in at.items():
        offsets.setdefault(topic, {})[partition] = offset
    return Position.of(offsets)


class LocalStores:
    """Find the stores of this instance by name, and explain why a store is missing."""

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        *,
        registry: StoreRegistry,
        topics: Callable[[], AppTopics],
        clocks: Callable[[], Clocks],
        state: Callable[[], InstanceState],
        check_loop: Callable[[], None],
    ) -> None:
        self._topology = topology
        self._config = config
        self.registry: StoreRegistry = registry
        self.topics: Callable[[], AppTopics] = topics
        self._clocks = clocks
        self._state = state
        self._check_loop = check_loop
        self._subtopologies: dict[str, int] | None = None
        self._topics: dict[int, tuple[str, ...]] | None = None
        self._default: IsolationLevel = config.default_interactive_query_isolation_level

    def committed(self, isolation: IsolationLevel | None) -> bool:
        """Return whether to read committed changes only.

        Also accepts the setting's strings; raises ValueError for anything else.
        """
        if isolation is None:
            isolation = self._default
        try:
            return IsolationLevel(isolation) is IsolationLevel.READ_COMMITTED
        except ValueError:
            known = ", ".join(str(level) for level in IsolationLevel)
            raise ValueError(f"isolation is {isolation!r}: give {known}, or None") from None

    def now(self) -> float:
        """Return the clock reading (s) used to time slices of work."""
        return self._clocks().work_time()

    def spec(self, store: str) -> StoreSpec:
        """Return a store's spec; raises UnknownStore."""
        spec = self._topology.stores.get(store) or self._topology.global_stores.get(store)
        if spec is None:
            known = ", ".join((*self._topology.stores, *self._topology.global_stores)) or "none"
            raise UnknownStore(f"the topology has no store {store!r}; it has {known}")
        return spec

    def check_serdes(self, store: str, key: Serde[Any] | None, value: Serde[Any] | None) -> None:
        """Raise QueryFailed when the store is known to have other serdes; None stands for any."""
        spec, config = self.spec(store), self._config
        for what, given, own, default in (
            ("keys", key, spec.key, config.default_key_serde),
            ("values", value, spec.value, config.default_value_serde),
        ):
            found = with_default(own, default)
            wanted = given and with_default(given, default)  # it may be inferred
            if wanted is not None and found is not None and not may_be_same(wanted, found):
                raise QueryFailed(
                    f"store {store} has {what} by {found!r}, not by {given!r}: give its own serdes",
                    reason=FailureReason.UNKNOWN_QUERY_TYPE,
                    store=store,
                )

    def is_global(self, store: str) -> bool:
        """Return whether a store is global, without partitions."""
        return store in self._topology.global_stores

    def check_running(self) -> None:
        """Raise NotRunning unless stores can be read, RuntimeError on another event loop."""
        self._check_loop()
        state = self._state()
        if state not in {InstanceState.RUNNING, InstanceState.REBALANCING}:
            text = (
                "its stores can be read once it has started"
                if state is InstanceState.CREATED
                else "its stores can no longer be read"
            )
            raise NotRunning(f"the app is {state.name}: {text}")

    def registered(self, task: TaskId) -> RegisteredStores | None:
        """Return a task's open stores."""
        return self.registry.get(task)

    def grouped(self, store: str) -> tuple[int, ...]:
        """Return the numbers of a store's tasks by a user's grouper, in order; else nothing."""
        topics, number = self.topics(), self.subtopology(store)
        if not topics.grouping.custom:
            return ()
        tasks = [task.partition for task in topics.tasks() if task.subtopology == number]
        return tuple(sorted(tasks))

    def partitions(self, store: str) -> int:
        """Return a store's number of partitions over all instances; 0 when no processor has it."""
        topics = self.topics()
        if topics.grouping.custom:
            return max(self.grouped(store), default=-1) + 1
        # Built on first use: an app without queries needs neither of the two tables.
        if self._topics is None:
            self._topics = topics.subtopology_topics()
        return max(
            (
                topics.partitions(topic) or 0
                for topic in self._topics.get(self.subtopology(store), ())
            ),
            default=0,
        )

    def homes(self, store: str, key: bytes) -> frozenset[int]:
        """Return the partitions of a store that records with this key may have gone to.

        There is one, unless a user's grouper puts equal partitions of topics into different tasks.
        """
        topics = self.topics()
        if topics.grouping.custom:
            return topics.readers(self.subtopology(store), partial(partition_of, key))
        return frozenset((partition_of(key, self.partitions(store)),))

    def subtopology(self, store: str) -> int:
        """Return the subtopology of a store; if none, a negative number that no task has."""
        if self._subtopologies is None:
            self._subtopologies = {
                name: subtopology.id
                for subtopology in self._topology.subtopologies()
                for name in subtopology.stores
            }
        # The number of a subtopology that exists nowhere, so that such a store simply has no parts.
        return self._subtopologies.get(store, _NOWHERE)

    def global_part(self, store: str) -> Part:
        """Return a global store by name; raises QueryFailed when it is not open."""
        registered = self.registered(GLOBAL_TASK)
        if registered is None:
            raise QueryFailed(
                f"global store {store} is not open: the app is starting, or ending",
                reason=FailureReason.NOT_PRESENT,
                store=store,
            )
        return self._part(store, registered)

    def part(self, store: str, partition: int) -> Part | None:
        """Return a partition of a store; None when it is not here.

        Raises QueryFailed when the store has no partition of that number.
        """
        count = self.partitions(store)
        if not 0 <= partition < count:
            raise QueryFailed(
                f"store {store} has no partition {partition}: it has {count}",
                reason=FailureReason.DOES_NOT_EXIST,
                store=store,
                partition=partition,
            )
        registered = self.registered(TaskId(self.subtopology(store), partition))
        return None if registered is None else self._part(store, registered)

    def parts(self, store: str) -> list[Part]:
        """Return all partitions of a store that are here."""
        subtopology = self.subtopology(store)
        return [
            self._part(store, registered)
            for registered in self.registry
            if registered.task.subtopology == subtopology
        ]

    def _part(self, store: str, registered: RegisteredStores) -> Part:
        return Part(self, registered, reader_of(registered.stores.kept(store)))

    def readable(self, store: str, partition: int | None, *, stale: bool) -> list[Part]:
        """Return the parts of a store to read together.

        Without `stale` and `partition`, leave out standbys, because the instances with the active
        tasks answer for their partitions. Raises NotRunning, and QueryFailed when there is no part
        or, without `stale`, when a part is not up to date.
        """
        self.check_running()
        if self.is_global(store):
            found = [self.global_part(store)]
        elif partition is None:
            found = [part for part in self.parts(store) if stale or part.role is not Role.STANDBY]
        else:
            part = self.part(store, partition)
            found = [] if part is None else [part]
        if not found:
            what = (
                f"store {store}" if partition is None else f"partition {partition} of store {store}"
            )
            raise QueryFailed(
                f"{what} is not on this instance, or not yet: try again, or ask another instance",
                reason=FailureReason.NOT_PRESENT,
                store=store,
                partition=partition,
            )
        if not stale:
            self.require_active(store, found)
        return found

    def require_active(self, store: str, parts: list[Part]) -> None:
        """Raise QueryFailed when one of the parts is not active."""
        others = [part for part in parts if not part.active]
        if others:
            text = ", ".join(f"{part.partition} ({part.role.value})" for part in others)
            raise QueryFailed(
                f"store {store}: partitions that may be stale: {text}; try again, or allow stale "
                "reads",
                reason=FailureReason.NOT_ACTIVE,
                store=store,
                partition=others[0].partition,
            )
