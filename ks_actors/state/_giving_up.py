"""The one place where local state is given up: it is always told of, and a store that has no changelog is never given up."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ks_actors._errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ks_actors.topology._stores import StoreSpec

_log = logging.getLogger("ks_actors")


def give_up(task: str, stores: Iterable[StoreSpec], directory: Path | None, reason: str) -> None:
    """Tell that what is on disk of some stores of a task is given up, and why; its caller deletes it then.

    Raises StateError when one of them has no changelog: there is no other copy, so the user decides.
    """
    wanted = list(stores)
    only = [spec.name for spec in wanted if not spec.logging]
    if only:
        raise StateError(
            f"store {', '.join(only)} of task {task} has no changelog, and its only copy, in {directory}, cannot be used: {reason}. Put back a copy "
            "of that directory, or, to begin with an empty store, move the directory away and start again"
        )
    _log.warning(
        "the local state of store %s of task %s, in %s, is given up, and restored from its changelog: %s",
        ", ".join(spec.name for spec in wanted), task, directory, reason,
    )  # fmt: skip
