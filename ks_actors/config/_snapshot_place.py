"""The place of snapshots, and the local state that it must not overlap."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# fsspec's names of the local file system, with or without slashes.
_LOCAL: Final = re.compile(r"(file|local):(//)?")


def snapshot_contradictions(values: Mapping[str, Any]) -> list[str]:
    """Return the contradiction between the place of snapshots and the state directory, if any.

    Local state may be deleted at any time (by a reset, or by hand), and snapshots with it. Old
    snapshots are deleted too, and state among them could be taken for one.
    """
    uri, name = values["snapshot_uri"], values["application_id"]
    local = None if uri is None else local_directory(uri)
    if local is None:
        return []
    snapshots = _resolved(local / name)
    state = _resolved(values["state_dir"] / name)
    if not (snapshots.is_relative_to(state) or state.is_relative_to(snapshots)):
        return []
    problem = (
        f"snapshot_uri: the snapshots of {name} would be in {snapshots}, which overlaps {state}, "
        "where state_dir has its local state: deleting one would delete the other. Name another "
        "directory"
    )
    return [problem]


def local_directory(uri: str) -> Path | None:
    """Return the directory of a URI as fsspec understands it; None if it is not on this machine."""
    # In a chain such as `simplecache::file:///path`, the last link has the files.
    last = uri.rpartition("::")[2]
    path = _LOCAL.sub("", last, count=1) if _LOCAL.match(last) else last
    if "://" in path or "\0" in path:
        return None
    return Path(os.path.expanduser(path))  # noqa: PTH111 - unlike Path, leaves unknown users as they are


def _resolved(path: Path) -> Path:
    # Links count: two names of one directory overlap.
    return Path(os.path.realpath(path))
