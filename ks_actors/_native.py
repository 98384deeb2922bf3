"""The kernel of `_kernel_src`, where it could be built; KS_ACTORS_WITHOUT_KERNEL=1 in the environment leaves it out."""

from __future__ import annotations

import contextlib
import os
from typing import Any

WITHOUT = "KS_ACTORS_WITHOUT_KERNEL"

_found: Any = None
if os.environ.get(WITHOUT) != "1":
    with contextlib.suppress(ImportError):
        from ks_actors import _kernel as _found

kernel: Any = _found
"""The module that `_kernel.pyi` describes, or None: its users have Python code that does the same, more slowly."""
