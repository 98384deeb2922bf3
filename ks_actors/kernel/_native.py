"""The kernel built from `kernel/src`, if there is one.

KS_ACTORS_WITHOUT_KERNEL=1 in the environment disables it.
"""

from __future__ import annotations

import logging
import os
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import ModuleType

WITHOUT: Final = "KS_ACTORS_WITHOUT_KERNEL"
SWITCHES: Final = frozenset({WITHOUT, "KS_ACTORS_WITH_KERNEL", "KS_ACTORS_WITHOUT_AHEAD"})
"""Environment variables of the kernel and its build; they look like settings but are not."""

_NAME: Final = "ks_actors.kernel._kernel"
_log = logging.getLogger("ks_actors")
_warned: bool = False


def _load() -> tuple[ModuleType | None, str]:
    """Return the kernel, or None and the reason."""
    if os.environ.get(WITHOUT) == "1":
        return None, f"{WITHOUT}=1 disables it"
    try:
        return import_module(_NAME), ""
    except ModuleNotFoundError as error:
        # A module that the kernel itself needs is missing: that is a broken installation, not a
        # choice.
        if error.name != _NAME:
            raise
        return None, "it was not built when ks-actors was installed"
    # The kernel is for another Python, or lacks a symbol: slower code is better than an error.
    except ImportError as error:
        return None, f"it cannot be loaded: {error}"


_found, _reason = _load()
HAS_KERNEL: Final[bool] = _found is not None
"""Whether there is a kernel; without a kernel, slower Python code does the same."""
missing: Final[str] = _reason
"""The reason why there is no kernel; empty when there is one."""
if TYPE_CHECKING:
    # The module of `_kernel.pyi`, with all types. It may be used only where HAS_KERNEL is true.
    from ks_actors.kernel import _kernel

    kernel = _kernel
else:
    kernel = _found


def tell_if_missing() -> None:
    """Warn that there is no kernel, once in a process, unless the environment disables it."""
    global _warned  # noqa: PLW0603 - a process has one kernel, and one warning
    if not HAS_KERNEL and not _warned and os.environ.get(WITHOUT) != "1":
        _warned = True
        _log.warning(
            "running without the C kernel, which takes more CPU time: %s; install a C compiler "
            "and Python's headers, then `pip install --force-reinstall --no-cache-dir ks-actors`, "
            "or set %s=1 if you do not want it",
            missing,
            WITHOUT,
        )
