"""The layout of state on disk that tests run under: `STATE_LAYOUT=shared` makes it one database for all tasks.

Tests that look into a task's own database name the layout themselves.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

LAYOUT = os.environ.get("STATE_LAYOUT", "task")


OWN = pytest.mark.skipif(LAYOUT != "task", reason="it is about the databases that tasks have of their own")


def database_of(task: Path) -> Path:
    """Return the directory of the database with the rows of the task of a directory."""
    return task / "rocksdb" if LAYOUT == "task" else task.parent / "shared"


def state_of(task: Path) -> Path:
    """Return the directory that errors name."""
    return task if LAYOUT == "task" else task.parent / "shared"


def key_of(task: Path, key: bytes) -> bytes:
    """Return the key of a row in that database."""
    return key if LAYOUT == "task" else task.name.encode() + b"/" + key


def use_layout() -> None:
    """Make `LAYOUT` the default of `state_layout`."""
    if LAYOUT == "task":
        return
    from ks_actors.config import _settings  # noqa: PLC0415 - other passes import it when they need it

    settings: Any = _settings.SETTINGS
    settings["state_layout"] = settings["state_layout"]._replace(default=lambda _: LAYOUT)
