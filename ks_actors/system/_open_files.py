"""The limit of open files of a process."""

from __future__ import annotations

import logging
import sys

_log = logging.getLogger("ks_actors")


def raise_open_files() -> None:
    """Raise the soft limit of open files to the hard limit, where the system has such limits.

    Each task with state on disk needs open files, and a limit of 1,024 is usual.
    """
    if sys.platform == "win32":  # pragma: no cover - it has no such limit
        return
    import resource  # noqa: PLC0415 - Windows does not have it

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        _log.warning(
            "the limit of open files stays at %d; it could not be raised to %d: %s",
            soft,
            hard,
            error,
        )
