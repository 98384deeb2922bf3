"""The layout of state on disk that tests run under: `STATE_LAYOUT=shared` makes it one database for all tasks.

Tests that look into a task's own database name the layout themselves.
"""

from __future__ import annotations

import os
from typing import Any

LAYOUT = os.environ.get("STATE_LAYOUT", "task")


def use_layout() -> None:
    """Make `LAYOUT` the default of `state_layout`."""
    if LAYOUT == "task":
        return
    from ks_actors.config import _settings  # noqa: PLC0415 - other passes import it when they need it

    settings: Any = _settings.SETTINGS
    settings["state_layout"] = settings["state_layout"]._replace(default=lambda _: LAYOUT)
