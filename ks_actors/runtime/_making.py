"""How the stores of a task are made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors.state import TaskStores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ks_actors.runtime._current import Current
    from ks_actors.state import SharedResources
    from ks_actors.topology import StoreSpec

GLOBAL = "global"


def make_stores(
    name: str,
    specs: Sequence[StoreSpec],
    *,
    directory: Path | None,
    shared: SharedResources | None,
    current: Current,
    expired: Callable[[int], None],
    topics: Mapping[str, str],
) -> TaskStores | None:
    """Return the stores of a task, still to be opened; None when it has none. `directory` is where those of all tasks are."""
    if not specs:
        return None
    return TaskStores(
        name,
        specs,
        directory=None if directory is None else directory / name,
        shared=shared,
        record_time=lambda: current.timestamp,
        expired=expired,
        topics=topics,
    )


def task_directory(state_dir: Path, application_id: str) -> Path:
    """Return the directory of an application's tasks."""
    return state_dir / application_id
