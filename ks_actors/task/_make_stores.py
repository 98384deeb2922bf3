"""Create the stores of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors.processors.api import call_time
from ks_actors.state import TaskStores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ks_actors.records import Headers
    from ks_actors.state import SharedResources
    from ks_actors.task._record_context import RecordContextHolder
    from ks_actors.topology import StoreSpec

GLOBAL = "global"


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
) -> TaskStores | None:
    """Return the stores of a task, not yet open; None when it has none.

    `directory` is that of all tasks. The other parameters are those of `TaskStores`.
    """
    if not specs:
        return None

    def record_time() -> int:
        # While a call of an async processor runs, the task may be at any other record.
        time = call_time()
        return current.timestamp if time is None else time

    def record_headers() -> Headers:
        return current.headers if call_time() is None else ()

    return TaskStores(
        name,
        specs,
        directory=None if directory is None else directory / name,
        shared=shared,
        record_time=record_time,
        record_headers=record_headers,
        expired=expired,
        topics=topics,
        exact=exact,
        vectors=vectors,
        assigned=assigned,
    )


def task_directory(state_dir: Path, application_id: str) -> Path:
    """Return the directory of an application's tasks."""
    return state_dir / application_id
