"""Metrics of stores, caches and databases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ks_actors.metrics.families import store as f
from ks_actors.system import Later, is_loaded
from ks_actors.topology import ProcessorNode, StoreKind, StorePlace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ks_actors.metrics import Instrument, MetricSource, Readings
    from ks_actors.runtime.metrics._watched import Watched
    from ks_actors.runtime.shared import Metrics
    from ks_actors.task import RegisteredStores
    from ks_actors.topology import StoreSpec, Topology

if TYPE_CHECKING:
    from ks_actors.processors import tables
else:
    tables = Later("ks_actors.processors.tables")

_DATABASE: Final = "rocksdb"
_SCOPES: Final = {
    StoreKind.WINDOW: "-window",
    StoreKind.TIMESTAMPED_WINDOW: "-window",
    StoreKind.SESSION: "-session",
}
_PLACES: Final = {
    StorePlace.DATABASE: "rocksdb",
    StorePlace.MEMORY: "in-memory",
    StorePlace.ENGINE: "engine",
    # Custom stores have always had this tag.
    StorePlace.CUSTOM: "rocksdb",
}
_COMMITS: Final = ("commit-latency-avg", "commit-latency-max")
_NS_PER_MS: Final = 1e6


def _suppressing(topology: Topology) -> frozenset[str]:
    """Return the stores of `suppress`, which have their own tag."""
    if not is_loaded(tables):
        return frozenset()
    return frozenset(
        store
        for node in topology.nodes.values()
        if isinstance(node, ProcessorNode) and isinstance(node.operator, tables.Suppress)
        for store in node.stores
    )


def _state_tag(spec: StoreSpec, suppressing: frozenset[str]) -> str:
    """Return the name of the tag for a store, by its kind, as in Kafka Streams."""
    if spec.name in suppressing:
        return "in-memory-suppression-state-id"
    return f"{_PLACES[spec.place]}{_SCOPES.get(spec.kind, '')}-state-id"


def store_source(metrics: Metrics, watched: Watched) -> MetricSource:
    """Return the source of the metrics of stores, caches and databases; standbys included."""
    thread, client = watched.pool, watched.config.client_id
    suppressing = _suppressing(watched.topology)

    def read() -> Iterator[Readings]:
        for one in watched.registry:
            yield from _stores(one, thread, client, suppressing)
            tags = {"thread-id": thread, "task-id": str(one.task)}
            for cache in () if one.processing is None else one.processing.caches:
                ratios = cache.hit_ratio.figures()
                yield (
                    tags | {"record-cache-id": cache.name},
                    [(f.HIT_RATIO[name], value) for name, value in ratios.items()],
                )
        # The database of all tasks has its name in place of a task.
        for name, database in metrics.databases.items():
            tags = {"thread-id": thread, "task-id": name, f"{_DATABASE}-state-id": _DATABASE}
            yield tags, _database(database)

    return read


def _stores(
    one: RegisteredStores, thread: str, client: str, suppressing: frozenset[str]
) -> Iterator[Readings]:
    task = str(one.task)
    commits = one.stores.commit_times.figures()
    task_here = one.processing
    in_thread = task_here is not None and task_here.thread_guard.since is not None
    for spec, figures in one.stores.figures(in_thread=in_thread):
        readings: list[tuple[Instrument, Any]] = [(f.UNCOMMITTED, figures.uncommitted_bytes)]
        if spec.place is StorePlace.MEMORY:
            readings.append((f.NUM_KEYS, figures.resident_rows))
        if figures.open_iterators is not None:
            readings.append((f.OPEN_ITERATORS, figures.open_iterators))
        if (times := commits.get(spec.name)) is not None:
            readings.append((f.COMMIT_RATE, times["commit-rate"]))
            readings.append((f.COMMIT_LATENCY, [times[name] * _NS_PER_MS for name in _COMMITS]))
        yield (
            {"thread-id": thread, "task-id": task, _state_tag(spec, suppressing): spec.name},
            readings,
        )
        yield (
            {
                "client-id": client,
                "task-id": task,
                "store": spec.name,
                "role": one.role.value,
            },
            [
                (f.MEMORY, figures.memory_bytes),
                (f.RESIDENT, figures.resident_rows),
                (f.UNWRITTEN, figures.unwritten_bytes),
            ],
        )


def _database(figures: Mapping[str, float]) -> Iterator[tuple[Instrument, Any]]:
    for known in (f.DATABASE_PROPERTIES, f.DATABASE_COUNTS):
        for name, instrument in known.items():
            if (value := figures.get(name)) is not None:
                yield instrument, value
