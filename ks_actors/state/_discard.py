"""The only place that discards local state.

It always logs a warning, and never discards a store without changelog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ks_actors._errors import StateError
from ks_actors.lifecycle import component_log
from ks_actors.topology import StorePlace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from ks_actors.topology import StoreSpec

_log = component_log(__name__)


_RESTORED: Final = "is deleted, and restored from its changelog"


def without_copy(stores: Iterable[StoreSpec]) -> list[str]:
    """Return the names of persistent stores without changelog: the disk has their only copy."""
    return [
        spec.name for spec in stores if spec.place is not StorePlace.MEMORY and not spec.logging
    ]


def logged_on_disk(stores: Iterable[StoreSpec]) -> set[str]:
    """Return the names of persistent stores with a changelog: the disk has a copy of them."""
    return {spec.name for spec in stores if spec.place is not StorePlace.MEMORY and spec.logging}


def give_up(
    task: str,
    stores: Iterable[StoreSpec],
    directory: Path | None,
    reason: str,
    *,
    fate: str = _RESTORED,
    others: Collection[str] = (),
) -> None:
    """Log that a task's local state is discarded, and why; the caller then deletes it.

    `fate` is the log's phrase for the future of the stores. `others` are stores without changelog
    that the state also has, but the topology does not. Raises StateError when there are `others`,
    or when one of the stores has no changelog: there is no other copy, so the user decides.
    """
    wanted = [spec for spec in stores if spec.place is not StorePlace.MEMORY]
    only = dict.fromkeys([*without_copy(wanted), *others])
    if only:
        raise StateError(
            f"store {', '.join(only)} of task {task} has no changelog, and its only copy, in "
            f"{directory}, cannot be used: {reason}. Put back a copy of that directory; or move it "
            "away to start with an empty store"
        )
    if not wanted:
        return
    _log.warning(
        "the local state of store %s of task %s, in %s, %s: %s",
        ", ".join(spec.name for spec in wanted),
        task,
        directory,
        fate,
        reason,
    )
