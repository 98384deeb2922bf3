"""The kernel of `_kernel_src`, where it could be built."""

from __future__ import annotations

from typing import Any

try:
    from ks_actors import _kernel as _found
except ImportError:
    _found = None  # type: ignore[assignment]

kernel: Any = _found
"""The module that `_kernel.pyi` describes, or None: its users have Python code that does the same, more slowly."""
