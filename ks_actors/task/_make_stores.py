"""Create the stores of a task."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ks_actors.processors.api import call_time
from ks_actors.state import TaskStores, TopicIds
from ks_actors.topology import StorePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ks_actors.records import Headers
    from ks_actors.state import SharedResources
    from ks_actors.task._record_context import RecordContextHolder
    from ks_actors.topology import StoreSpec

GLOBAL = "global"
_NO_IDS: Final = MappingProxyType[str, str]({})


def make_stores(
    name: str,
    specs: Sequence[StoreSpec],
    *,
    directory: Path | None,
    shared: SharedResources | None,
    current: RecordContextHolder,
    expired: Callable[[int], None],
    topics: Mapping[str, str],
    exact: bool = False,
    vectors: bool = False,
    assigned: bool = True,
    topic_ids: Mapping[str, str] = _NO_IDS,
    filled_from: Mapping[str, str] | None = None,
) -> TaskStores | None:
    """Return the stores of a task, not yet open; None when it has none.

    `directory` is that of all tasks. `topic_ids` are those of the task's topics, as far as known.
    `filled_from` has the topic that each store is filled from, by default its changelog. The other
    parameters are those of `TaskStores`.
    """
    if not specs:
        return None
    own = None if directory is None else directory / name
    origins = topics if filled_from is None else filled_from
    kept = [spec.name for spec in specs if spec.logging and spec.place is not StorePlace.MEMORY]

    def record_time() -> int:
        # While a call of an async processor runs, the task may be at any other record.
        time = call_time()
        return current.timestamp if time is None else time

    def record_headers() -> Headers:
        return current.headers if call_time() is None else ()

    return TaskStores(
        name,
        specs,
        directory=own,
        shared=shared,
        record_time=record_time,
        record_headers=record_headers,
        expired=expired,
        topics=topics,
        exact=exact,
        vectors=vectors,
        assigned=assigned,
        topic_ids=TopicIds(
            name,
            own if kept else None,
            {store: origins[store] for store in kept if store in origins},
            topic_ids,
        ),
    )


def task_directory(state_dir: Path, application_id: str) -> Path:
    """Return the directory of an application's tasks."""
    return state_dir / application_id
