"""Checks of the platform and of the package `actors`.

Importing this module runs them; it must come before all other imports.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path


def check_actors() -> None:
    """Raise ImportError if Python finds another module by the name `actors` than our package.

    It does not run the other module, whose own errors could come first.
    """
    ours = Path(__file__).resolve().parents[2] / "actors" / "__init__.py"
    found = find_spec("actors")
    if (
        found is not None
        and found.origin is not None
        and ours.exists()
        and Path(found.origin).resolve() != ours
    ):
        raise ImportError(
            f"ks_actors needs its package `actors`, but Python finds {found.origin} by that name; "
            f"rename that file or folder, or remove {sys.path[0]!r} from the front of sys.path",
            name="actors",
            path=found.origin,
        )


def check_platform(platform: str) -> None:
    """Raise ImportError on Windows; `platform` is `sys.platform`.

    Locks of state directories, signals and memory are those of POSIX.
    """
    if platform == "win32":
        raise ImportError(
            "ks_actors runs on Linux and macOS, not on Windows: use WSL 2 or a container there",
            name="ks_actors",
        )


check_platform(sys.platform)
check_actors()
