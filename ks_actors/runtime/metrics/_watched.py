"""The parts of an app that metrics are read from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.config import StreamsConfig
    from ks_actors.runtime.instance import Instance, Workers
    from ks_actors.runtime.shared import InstanceState
    from ks_actors.runtime.watch import PartitionStates
    from ks_actors.task import StoreRegistry, Telemetry
    from ks_actors.topology import Topology


class Watched(NamedTuple):
    """The parts of an app that metrics are read from; some are not there before the start."""

    config: StreamsConfig
    topology: Topology
    workers: Workers
    state: Callable[[], InstanceState]
    instance: Callable[[], Instance | None]
    registry: StoreRegistry
    telemetry: Telemetry
    log: Callable[[], object]

    def started(self) -> tuple[Instance, PartitionStates] | None:
        """Return the instance with its parts once all of them have been started."""
        instance = self.instance()
        if instance is None or instance.parts is None or not instance.prepared:
            return None
        return instance, instance.parts

    @property
    def pool(self) -> str:
        """The `thread-id` of tasks: workers share the tasks, so tasks belong to no worker."""
        return f"{self.config.client_id}-TaskManager"
