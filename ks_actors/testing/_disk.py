"""The files that a crash leaves on disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_TRIES = 1000


def copy_as_is(source: Path, target: Path) -> None:
    """Copy a directory as of one moment, even while it is written to.

    Data outside of files is lost, as with a killed process.
    """
    for _ in range(_TRIES):
        before = _look(source)
        shutil.rmtree(target, ignore_errors=True)
        try:
            shutil.copytree(source, target, symlinks=True)
        except (FileNotFoundError, shutil.Error):
            continue  # a compaction in the background has just deleted a file
        if _look(source) == before:
            return
    raise TimeoutError(f"{source} changes faster than it can be copied")


def _look(directory: Path) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for parent, _, names in os.walk(directory):
        for name in names:
            path = str(Path(parent, name))
            try:
                status = Path(path).stat()
            except FileNotFoundError:
                continue
            found[path] = status.st_size, status.st_mtime_ns
    return found
