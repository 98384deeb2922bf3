"""The choice between a database per task and one for all tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors.state.disk import SHARED, SharedDatabase
from ks_actors.topology import StorePlace

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ks_actors.state.disk import SharedResources
    from ks_actors.topology import StoreSpec


def attach(shared: SharedResources, root: Path, specs: Iterable[StoreSpec], *, layout: str) -> None:
    """Open the database of all tasks below `root`, if `layout` is `shared` or it exists.

    Blocks. `specs` are the stores of all tasks. Raises as `SharedDatabase`.
    """
    on_disk = [spec for spec in specs if spec.place is StorePlace.DATABASE]
    wanted = layout == "shared"
    if (wanted and on_disk) or (root / SHARED).exists():
        shared.database = SharedDatabase(root, shared, on_disk, leaving=not wanted)
