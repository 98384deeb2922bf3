"""A check of the package `actors`.

Importing this module runs it; it must come before all other imports.
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


check_actors()
