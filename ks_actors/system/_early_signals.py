"""Signals that come before a command of the command line runs.

Imports take half a second, or more on a busy machine. A KeyboardInterrupt there shows a traceback,
or is lost in a callback of the import system. So a signal ends the process, with the exit code that
shells report for it. Importing this module enables that in the command line's process; it must come
before all other imports.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_DEFAULTS: Final[dict[int, Callable[[int, FrameType | None], Any] | signal.Handlers]] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
_MODULES: Final = (["-m", "ks_actors"], ["-m", "ks_actors.cli"])


def _is_command_line() -> bool:
    """Return whether this process is the program `ks-actors`, or `python -m ks_actors`."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""  # noqa: PTH119 - pathlib takes longer
    # While a package is imported for -m, the name of the program is that option.
    return name == "ks-actors" or (
        name == "-m" and sys.orig_argv[-len(sys.argv) - 1 :][:2] in _MODULES
    )


def end_early() -> None:
    """Let a signal end the command line's process silently, until `heed_signals`.

    A signal that is ignored, or has a handler, stays as it is. In other processes do nothing.
    """
    for number, default in _DEFAULTS.items() if COMMAND_LINE else ():
        if signal.getsignal(number) is default:
            signal.signal(number, _end)


def heed_signals() -> None:
    """Restore the usual effects of the signals."""
    for number, default in _DEFAULTS.items():
        if signal.getsignal(number) is _end:
            signal.signal(number, default)


def _end(number: int, _: FrameType | None) -> None:
    for stream in (sys.stdout, sys.stderr):
        # A stream may be closed, broken, or at work at this moment.
        with suppress(Exception):
            stream.flush()
    os._exit(128 + number)


COMMAND_LINE: Final = _is_command_line()
"""Whether this process is the command line; known at its begin only."""

end_early()
