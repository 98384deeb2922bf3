"""Check, by being imported before all others, that the system is supported and that no module of the user's hides the package `actors`."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path


def check_actors() -> None:
    """Raise ImportError if Python finds another module by the name `actors` than the package that ks-actors comes with.

    Nothing of the other module is run, so its own errors are not met first.
    """
    ours = Path(__file__).resolve().parents[2] / "actors" / "__init__.py"
    found = find_spec("actors")
    if found is not None and found.origin is not None and ours.exists() and Path(found.origin).resolve() != ours:
        raise ImportError(
            f"ks_actors needs its package `actors`, and Python finds {found.origin} by that name; rename that file or folder, or take {sys.path[0]!r}"
            " from the front of sys.path",
            name="actors",
            path=found.origin,
        )


def check_platform(platform: str) -> None:
    """Raise ImportError on Windows: locks of state directories, signals and memory are those of POSIX. `platform` is `sys.platform`."""
    if platform == "win32":
        raise ImportError("ks_actors runs on Linux and macOS, and not on Windows; there, use it in WSL 2 or a container", name="ks_actors")


check_platform(sys.platform)
check_actors()
