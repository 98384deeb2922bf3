"""The runtime form of one node in one task."""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from ks_actors._errors import KsActorsError, StoreNotConnected, StreamsError
from ks_actors.lifecycle import component_log, passes
from ks_actors.task._error_handling import OWN_ERRORS
from ks_actors.task.figures import emissions_of
from ks_actors.task.origins import RecordOrigins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ks_actors.history import EdgeTaps
    from ks_actors.processors.api import IdleNode, Operator, Process, ProcessBatch, RecordMetadata
    from ks_actors.records import Batch, Headers, TaskId
    from ks_actors.serdes import Serde
    from ks_actors.task._error_handling import ExceptionHandlers
    from ks_actors.task._record_context import RecordContextHolder
    from ks_actors.task._update_cache import Caches, UpdateCache
    from ks_actors.task.figures import Emitted
    from ks_actors.task.times import Schedule


_log = component_log(__name__)
_TELL_EACH_MS: Final = 60_000


class TaskServices:
    """The services that all nodes of a task share."""

    def __init__(
        self,
        *,
        application_id: str,
        task_id: TaskId,
        current: RecordContextHolder,
        handlers: ExceptionHandlers,
        stores: Mapping[str, Any],
        global_stores: Mapping[str, Any],
        wall_time: Callable[[], int],
        schedule: Callable[[str, int, str, Callable[[int], None], int | None], Schedule],
        when_idle: Callable[[str, int, IdleNode], None],
        dropped: Callable[[int], None],
        request_commit: Callable[[], None],
        progress: dict[str, int],
        emissions: dict[str, Emitted],
        key_serde: Callable[..., Serde[Any]],
        value_serde: Callable[..., Serde[Any]],
        taps: EdgeTaps,
        caches: Caches | None = None,
        kafka_streams_faults: bool = False,
    ) -> None:
        self.application_id: str = application_id
        self.task_id: TaskId = task_id
        self.current: RecordContextHolder = current
        self.handlers: ExceptionHandlers = handlers
        self.stores: Mapping[str, Any] = stores
        self.global_stores: Mapping[str, Any] = global_stores
        self.wall_time: Callable[[], int] = wall_time
        self.schedule: Callable[[str, int, str, Callable[[int], None], int | None], Schedule] = (
            schedule
        )
        self.when_idle: Callable[[str, int, IdleNode], None] = when_idle
        self.dropped: Callable[[int], None] = dropped
        self.request_commit: Callable[[], None] = request_commit
        self.progress: dict[str, int] = progress
        # The figures are by node, and continue when the nodes are made again.
        self.emissions: dict[str, Emitted] = emissions
        self.key_serde: Callable[..., Serde[Any]] = key_serde
        self.value_serde: Callable[..., Serde[Any]] = value_serde
        self.taps: EdgeTaps = taps
        self.caches: Caches | None = caches
        self.kafka_streams_faults: bool = kafka_streams_faults


class NodeWork:
    """The `NodeContext` of one node: its children, its stores, and the services of its task."""

    def __init__(self, services: TaskServices, node: str, connected: Sequence[str]) -> None:
        self._services: TaskServices = services
        self._connected: frozenset[str] = frozenset(connected)
        self._exact: bool = False
        self._joined: bool = False
        self.node: str = node
        self.application_id: str = services.application_id
        self.kafka_streams_faults: bool = services.kafka_streams_faults
        self.leaves_out: bool = services.handlers.leaves_out
        self.caching: bool = services.caches is not None
        self.task_id: TaskId = services.task_id
        self.children: dict[str, Process] = {}
        self.children_batch: dict[str, ProcessBatch] = {}
        self.forward: Process = _to_nobody
        self.forward_batch: ProcessBatch = _batch_to_nobody
        self.dropped: Callable[..., None] = _counting(services.dropped, self._tell_of_drop)
        self._tell_at: int | None = None
        self.wall_time: Callable[[], int] = services.wall_time
        self.when_idle: Callable[[int, IdleNode], None] = partial(services.when_idle, node)
        self.request_commit: Callable[[], None] = services.request_commit
        self.progress: dict[str, int] = services.progress
        self.caches: list[UpdateCache] = []
        self.beginnings: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def when_made(self, make: Callable[[], None], init: Callable[[], None]) -> None:
        """Register `make` and `init`, to be called once the functions of all nodes exist.

        They are called in the topology's order of nodes.
        """
        self.beginnings.append(
            (partial(self._begin, "create", make), partial(self._begin, "initialize", init))
        )

    def _begin(self, verb: str, step: Callable[[], None]) -> None:
        try:
            step()
        except BaseException as error:
            # Keep the framework's own errors: they name the node, and the uncaught handler may know
            # their types.
            if isinstance(error, KsActorsError) or passes(error):
                raise
            raise StreamsError(
                f"could not {verb} a processor: {type(error).__name__}: {error}",
                task=self.task_id,
                node=self.node,
            ) from error

    def lead_to(
        self,
        children: Mapping[str, Process],
        batches: Mapping[str, ProcessBatch],
        *,
        disjoint: bool,
        exact: bool = False,
        joined: bool = False,
    ) -> None:
        """Set the children.

        `disjoint` children may take a batch one after the other. `exact`: some node reads the
        record's context. `joined`: some node joins tables.
        """
        self._exact, self._joined = exact, joined
        self.children = dict(children)
        self.children_batch = dict(batches)
        if len(children) == 1:
            (self.forward,) = children.values()
            (self.forward_batch,) = batches.values()
        elif children:
            self.forward = _fan_out(tuple(children.values()))
            self.forward_batch = (
                _batch_fan_out(tuple(batches.values()))
                if disjoint
                else one_by_one(self.forward, self._services.current)
            )

    def count_emissions(self, operator: Operator) -> None:
        """Count the results of an operator that holds results back."""
        if (emitted := emissions_of(operator)) is None:
            return
        emitted = self._services.emissions.setdefault(self.node, emitted)
        if emitted.holds_back:
            self.forward = emitted.counted(self.forward)
            self.forward_batch = emitted.counted_batch(self.forward_batch)

    def store(self, name: str) -> Any:
        """Return a connected or global store."""
        if name in self._connected:
            return self._services.stores[name]
        if name in self._services.global_stores:
            return self._services.global_stores[name]
        known = (
            "is connected to " + ", ".join(sorted(self._connected))
            if self._connected
            else "is connected to none"
        )
        raise StoreNotConnected(
            f"processor {self.node} is not allowed to use store {name!r}, which {known}: name the "
            f"store where the processor is added, as in stream.process(supplier, {name!r}) or "
            f"topology.connect_processor_and_state_stores({self.node!r}, {name!r})"
        )

    def cache(self, store: str, *, send_old: bool) -> UpdateCache | None:
        """Return the cache for a store's updates; None when the store is not cached."""
        caches = self._services.caches
        if caches is None:
            return None
        found, forward, forward_batch = self.store(store), self.forward, self.forward_batch
        made = caches.of(
            store,
            found,
            forward,
            forward_batch,
            exact=self._exact,
            joined=self._joined,
            send_old=send_old,
        )
        if made is not None:
            self.caches.append(made)
        return made

    def key_serde(self, serde: Serde[Any] | None) -> Serde[Any]:
        """Return a serde of keys, the app's default for None."""
        return self._services.key_serde(serde, of=f"processor {self.node}")

    def value_serde(self, serde: Serde[Any] | None) -> Serde[Any]:
        """Return a serde of values, the app's default for None."""
        return self._services.value_serde(serde, of=f"processor {self.node}")

    def origins(self) -> RecordOrigins:
        """Return the origins that restore the context of records this node held back."""
        return RecordOrigins(self._services.current)

    def schedule(
        self,
        interval_ms: int,
        punctuation: str,
        callback: Callable[[int], None],
        start_ms: int | None = None,
    ) -> Callable[[], None]:
        """Schedule a periodic callback; return the function that cancels it."""
        return self._services.schedule(
            self.node, interval_ms, punctuation, callback, start_ms
        ).cancel

    def failed(
        self,
        error: BaseException,
        key: Any,
        value: Any,
        timestamp: int,
        headers: Headers,
        offset: int | None = None,
    ) -> None:
        """Ask the handler about a record that could not be processed."""
        if isinstance(error, OWN_ERRORS):
            raise error
        self._services.handlers.processing(self.node, error, key, value, timestamp, headers, offset)

    def retried(self, error: BaseException, origin: RecordMetadata | None) -> None:
        """Note a failed call that is made again, in the history of exceptions."""
        self._services.handlers.retried(self.node, error, origin)

    def _tell_of_drop(self) -> None:
        """Log the first dropped record, then one record a minute: more lines could fill the log."""
        now = self.wall_time()
        if self._tell_at is not None and now < self._tell_at:
            return
        self._tell_at = now + _TELL_EACH_MS
        record = self.record_metadata()
        _log.warning(
            "node %s of task %s has dropped a record%s: it lacks a key or value, or it is too "
            "late; further drops are counted in dropped-records-total, and not logged for a "
            "minute",
            self.node,
            self.task_id,
            ""
            if record is None
            else f" of {record.topic}-{record.partition}, at offset {record.offset} or later",
        )

    def stream_time(self) -> int:
        """Return the task's stream time."""
        return self._services.current.stream_time

    def record_metadata(self) -> RecordMetadata | None:
        """Return the source position of the current record."""
        return self._services.current.metadata()


def guarded(process: Process, work: NodeWork) -> tuple[Process, Callable[[Process], None]]:
    """Wrap `process` so that the handler decides about its errors.

    The framework's own errors pass through. Returns the wrapper, and the function that exchanges
    the process in it.
    """

    def guard(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            process(key, value, timestamp, headers)
        except BaseException as error:  # noqa: BLE001 - whatever a user's code raises
            work.failed(error, key, value, timestamp, headers)

    def exchange(other: Process) -> None:
        nonlocal process
        process = other

    return guard, exchange


def entered(process: Process) -> tuple[Process, Callable[[Process], None]]:
    """Return a function that calls `process`, and the function that exchanges the process in it."""

    def enter(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        process(key, value, timestamp, headers)

    def exchange(other: Process) -> None:
        nonlocal process
        process = other

    return enter, exchange


def entered_batch(batch: ProcessBatch) -> tuple[ProcessBatch, Callable[[ProcessBatch], None]]:
    """Return a function that calls `batch`, and the function that exchanges the batch in it."""

    def enter(records: Batch) -> None:
        batch(records)

    def exchange(other: ProcessBatch) -> None:
        nonlocal batch
        batch = other

    return enter, exchange


def one_by_one(process: Process, current: RecordContextHolder) -> ProcessBatch:
    """Return a function that takes a batch record by record, and updates the task's offset."""

    def batch(records: Batch) -> None:
        headers = repeat(()) if records.headers is None else records.headers
        offsets = (
            records.offsets if len(records.offsets) == len(records) else repeat(current.offset)
        )
        for key, value, timestamp, header, offset in zip(
            records.keys, records.values, records.timestamps, headers, offsets, strict=False
        ):
            current.offset = offset
            process(key, value, timestamp, header)

    return batch


def _fan_out(children: Sequence[Process]) -> Process:
    def forward(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        for child in children:
            child(key, value, timestamp, headers)

    return forward


def _batch_fan_out(children: Sequence[ProcessBatch]) -> ProcessBatch:
    def forward(records: Batch) -> None:
        if len(records):
            for child in children:
                child(records)

    return forward


def _to_nobody(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
    """Drop the record: the node has no children."""


def _batch_to_nobody(records: Batch) -> None:
    """Drop the batch: the node has no children."""


def _counting(count: Callable[[int], None], tell: Callable[[], None]) -> Callable[..., None]:
    def dropped(number: int = 1, *, told: bool = True) -> None:
        count(number)
        if told:
            tell()

    return dropped
