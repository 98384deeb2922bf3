"""The specs of stores, and serdes, with the app's defaults filled in."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import msgspec

from ks_actors._errors import TopologyError
from ks_actors.serdes import is_complete, with_default, wraps_key
from ks_actors.topology import StoreKind, spec_with_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.config import StreamsConfig
    from ks_actors.records import TaskId
    from ks_actors.serdes import Serde
    from ks_actors.task._app_topics import AppTopics
    from ks_actors.topology import StoreSpec


@final
class DefaultSerdes:
    """The serdes of nodes and stores, with the app's defaults for missing parts.

    All methods raise TopologyError, with `of` in its text, when a serde is missing.
    """

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config

    def pair(
        self, key: Serde[Any] | None, value: Serde[Any] | None, *, of: str
    ) -> tuple[Serde[Any], Serde[Any]]:
        """Return the serdes of keys and values of a node or store."""
        return self.key(key, of=of), self.value(value, of=of)

    def key(self, serde: Serde[Any] | None, *, of: str) -> Serde[Any]:
        """Return a serde of keys."""
        return self._required(serde, "key", of)

    def value(self, serde: Serde[Any] | None, *, of: str) -> Serde[Any]:
        """Return a serde of values. A serde that wraps a key takes the default of keys."""
        return self._required(serde, "key" if wraps_key(serde) else "value", of)

    def _required(self, serde: Serde[Any] | None, what: str, of: str) -> Serde[Any]:
        config = self._config
        default = config.default_key_serde if what == "key" else config.default_value_serde
        found = with_default(serde, default)
        if found is None or not is_complete(found):
            raise TopologyError(
                f"the {what} serde of {of} is missing: give it where the topic or store is named "
                "(Consumed, Produced, Grouped, Materialized ...), or set "
                f"default_{what}_serde for the app"
            )
        return found


@final
class StoreSpecs:
    """The specs of the topology's stores, with the app's defaults filled in.

    `cached` has the specs of stores with a cache, by name. Raises TopologyError for a missing
    serde.
    """

    def __init__(self, topics: AppTopics, serdes: DefaultSerdes) -> None:
        self._topics = topics
        self._serdes = serdes
        stores = topics.topology.stores if topics.config.statestore_cache_max_bytes else {}
        self.cached: Mapping[str, StoreSpec] = {
            name: self._complete(spec) for name, spec in stores.items() if spec.caching
        }

    @cached_property
    def by_subtopology(self) -> Mapping[int, list[StoreSpec]]:
        """The specs of all tasks of each subtopology."""
        return {
            subtopology.id: self.complete(subtopology.stores)
            for subtopology in self._topics.topology.subtopologies()
        }

    def of_all_tasks(self) -> list[StoreSpec]:
        """Return the specs of the tasks of all subtopologies."""
        return [spec for specs in self.by_subtopology.values() for spec in specs]

    def of_task(self, task: TaskId) -> list[StoreSpec]:
        """Return the specs of a task's stores.

        A store's source topic may have fewer partitions than there are tasks: such a task's store
        gets neither source topic nor changelog. Such a store stays empty and is in memory: on disk
        it would look like the only copy of state.
        """
        return [
            spec
            if spec.source_topic is None
            or task.partition < (self._topics.partitions(spec.source_topic) or 0)
            else msgspec.structs.replace(spec, logging=False, source_topic=None, type="in_memory")
            for spec in self.by_subtopology[task.subtopology]
        ]

    def complete(self, specs: Mapping[str, StoreSpec]) -> list[StoreSpec]:
        """Return specs with the app's defaults filled in."""
        return [self._complete(spec) for spec in specs.values()]

    def _complete(self, spec: StoreSpec) -> StoreSpec:
        config = self._topics.config
        if spec.kind is StoreKind.CUSTOM:
            return spec
        if config.dsl_store_format == "HEADERS":
            spec = spec_with_headers(spec, config.default_dsl_store)
        key, value = self._serdes.pair(spec.key, spec.value, of=f"store {spec.name}")
        return msgspec.structs.replace(
            spec,
            key=key,
            value=value,
            type=spec.type or config.default_dsl_store,
            spare_ms=0 if config.kafka_streams_faults else spec.spare_ms,
        )
