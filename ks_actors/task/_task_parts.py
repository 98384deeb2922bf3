"""The parts that all tasks of an instance share."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ks_actors._errors import ConfigError
from ks_actors.assignment import Grouping
from ks_actors.config import ProcessingGuarantee
from ks_actors.task._app_topics import AppTopics, nodes_of
from ks_actors.task._compiler import NodeGraph
from ks_actors.task._store_specs import DefaultSerdes, StoreSpecs
from ks_actors.task._update_cache import CacheBudget
from ks_actors.task.calls import check_threads
from ks_actors.task.figures import Telemetry
from ks_actors.topology import refuse_unnamed, wanted_by, with_headers
from ks_actors.tracing import UNTRACED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from ks_actors.assignment import PartitionGrouper, TaskAssignor
    from ks_actors.config import StreamsConfig
    from ks_actors.records import TaskId
    from ks_actors.topology import Topology
    from ks_actors.tracing import TaskTracing


def _wall_time() -> int:
    return time.time_ns() // 1_000_000


class Clocks(msgspec.Struct, frozen=True):
    """The clocks of an instance.

    `wall_time` is in ms. `steady_time` is a monotonic time in ms; without an app it is the wall
    clock. `work_time` measures slices of work, in seconds.
    """

    wall_time: Callable[[], int] = _wall_time
    steady_time: Callable[[], float] = _wall_time
    work_time: Callable[[], float] = time.perf_counter


_SYSTEM_CLOCKS: Final = Clocks()


class Planning(NamedTuple):
    """The user's parts in the assignment of a group, None for the default."""

    assignor: TaskAssignor | None = None
    grouper: PartitionGrouper | None = None


_DEFAULT_PLANNING: Final = Planning()


class TaskParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that all tasks of an instance share.

    `nodes` returns the nodes of a task. `global_stores` are filled in when they are open. With
    `replayable` the same records give the same output in the same order each time. Records without
    keys are spread over the partitions one by one, not in batches. Asynchronous nodes emit results
    in the records' order, when one of the nodes is full. Records of `unlogged` topics do not come
    from the log: their offsets mean nothing there. A log that takes encoded records takes up to
    `batch_bytes` in a write.
    """

    config: StreamsConfig
    topics: AppTopics
    serdes: DefaultSerdes
    stores: StoreSpecs
    clocks: Clocks
    telemetry: Telemetry
    cache: CacheBudget
    nodes: Callable[[TaskId], Iterable[str]]
    global_stores: dict[str, Any] = {}
    replayable: bool = False
    unlogged: frozenset[str] = frozenset()
    assignor: TaskAssignor | None = None
    graphs: dict[tuple[str, ...], NodeGraph] = {}
    batch_bytes: int = 0

    @classmethod
    def of(
        cls,
        topology: Topology,
        config: StreamsConfig,
        *,
        clocks: Clocks = _SYSTEM_CLOCKS,
        partitions: Callable[[str], int | None] = lambda _: None,
        nodes: Callable[[TaskId], Iterable[str]] | None = None,
        telemetry: Telemetry | None = None,
        planning: Planning = _DEFAULT_PLANNING,
    ) -> Self:
        """Return the parts of an app.

        `partitions` returns a topic's number of partitions, None while it is unknown. Raises
        ConfigError and TopologyError when the topology and the config do not fit each other.
        """
        if config.dsl_store_format == "HEADERS":
            topology = with_headers(topology, config.default_dsl_store)
        _check_optimizations(topology, config)
        if config.ensure_explicit_internal_resource_naming:
            refuse_unnamed(topology)
        check_threads(topology, config.default_timestamp_extractor)
        topics = AppTopics(topology, config, partitions, Grouping(planning.grouper))
        serdes = DefaultSerdes(config)
        return cls(
            config=config,
            topics=topics,
            serdes=serdes,
            stores=StoreSpecs(topics, serdes),
            clocks=clocks,
            telemetry=Telemetry() if telemetry is None else telemetry,
            cache=CacheBudget(config.statestore_cache_max_bytes),
            nodes=nodes_of(topology) if nodes is None else nodes,
            assignor=planning.assignor,
        )

    def graph(self, task: TaskId) -> NodeGraph:
        """Return the graph of a task's nodes, which tasks with the same nodes share."""
        names = tuple(self.nodes(task))
        found = self.graphs.get(names)
        if found is None:
            wrapper = self.config.processor_wrapper_class
            found = self.graphs[names] = NodeGraph(self.topics.topology, names, wrapper)
        return found

    @property
    def transactional(self) -> bool:
        """Whether the app commits by transactions."""
        return self.config.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2

    def tracing(self, task: TaskId) -> TaskTracing:
        """Return the tracing of a task."""
        config, tracing = self.config, self.telemetry.tracing
        return (
            UNTRACED
            if tracing is None
            else tracing.task(
                task, application_id=config.application_id, client_id=config.client_id
            )
        )


def _check_optimizations(topology: Topology, config: StreamsConfig) -> None:
    """Raise ConfigError when the topology lacks an optimization that the config asks for.

    A topology made by hand has nothing to optimize.
    """
    if topology.optimizations is not None and (
        missing := sorted(wanted_by(config.topology_optimization) - topology.optimizations)
    ):
        raise ConfigError(
            f"topology_optimization has {', '.join(missing)}, but the topology was built without: "
            "pass the config to StreamsBuilder.build, too"
        )
