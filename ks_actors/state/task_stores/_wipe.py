"""The deletion of a task's database, and of the data of its supplied engines."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from ks_actors._errors import StateError
from ks_actors.state._discard import give_up, logged_on_disk
from ks_actors.state.disk import DATABASE, ENGINES, SharedResources, unlogged_stores
from ks_actors.topology import StoreKind, StorePlace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ks_actors.state.disk import CheckpointFile
    from ks_actors.topology import StoreSpec


def wipe(
    task: str,
    directory: Path,
    specs: Sequence[StoreSpec],
    shared: SharedResources | None,
    file: CheckpointFile,
    reason: str,
) -> None:
    """Delete a task's database and engine data, with a warning that gives the `reason`. Blocks.

    Custom stores stay. If a deleted store, even a store of an earlier topology, has no changelog,
    raises StateError and deletes nothing.
    """
    own = [spec for spec in specs if spec.place in {StorePlace.DATABASE, StorePlace.ENGINE}]
    one = None if shared is None else shared.database
    if one is None and not directory.exists():
        return
    place = directory if one is None or (directory / DATABASE).exists() else one.directory
    give_up(task, own, place, reason, others=_former(task, directory, specs, shared))
    if one is not None:
        one.wipe(task)
    engines = [directory / ENGINES / spec.name for spec in own if spec.place is StorePlace.ENGINE]
    for data in (directory / DATABASE, *engines):
        if data.exists():
            shutil.rmtree(data)
    with suppress(OSError):  # fails if the directory has other engines, or is missing
        (directory / ENGINES).rmdir()
    # Custom stores have files of their own, which the database's damage does not touch.
    file.retain(spec.name for spec in specs if spec.kind is StoreKind.CUSTOM)


def _former(
    task: str, directory: Path, specs: Sequence[StoreSpec], shared: SharedResources | None
) -> list[str]:
    """Return the stores of earlier topologies whose only copy is in the database.

    Return none for an unreadable database, from which nothing can be saved.
    """
    try:
        found = unlogged_stores(task, directory, shared or SharedResources())
    except StateError:
        return []
    return sorted(set(found) - logged_on_disk(specs))
