"""`ks-actors run --reload`: restart when the source changes, for development."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ks_actors.cli._output import tell
from ks_actors.system import check_posix

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_LOOK_S: Final = 0.3
_SKIPPED: Final = {"__pycache__", "node_modules", "site-packages"}
_SUFFIXES: Final = {".py", ".toml", ".properties"}


def run_reloading(arguments: Sequence[str], directories: Iterable[Path]) -> int:
    """Run `ks-actors run` as a child, again after each change of a source; return its exit code.

    A change closes the child as SIGTERM does, with a last commit. A child that has ended by an
    error waits for the next change. SIGINT, SIGTERM and SIGHUP end both processes. Each signal is
    passed to the child once; a second signal ends the child at once, without a clean close. Raises
    ConfigError on Windows.
    """
    check_posix("--reload")
    watched = tuple(directories)
    command = [sys.executable, "-m", "ks_actors.cli", "run", *arguments]
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    while True:
        before = times(watched)
        # Ctrl-C goes to the whole process group: with the signal sent below, the child would get
        # two, and the second one ends it without a clean close.
        child = subprocess.Popen(command, process_group=0)  # noqa: S603 - this program
        try:
            changed = _wait(child, watched, before)
            if not changed:
                return 0
            names = ", ".join(str(path) for path in changed[:3])
            tell(f"{names} changed: the app starts again")
            child.send_signal(signal.SIGTERM)
            child.wait()
        except KeyboardInterrupt:
            code = _end(child)
            # A signal ended the child before the child could handle it; return the exit code that
            # shells report.
            return code if code >= 0 else 128 - code
        finally:
            # End the child after an error of this process, too: an app without a parent would keep
            # its log locked.
            if child.poll() is None:
                _end(child)


def _end(child: subprocess.Popen[bytes]) -> int:
    """Let the child close, and pass each further signal on to it; return its exit code."""
    while True:
        try:
            child.send_signal(signal.SIGTERM)
            return child.wait()
        except KeyboardInterrupt:
            continue


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def _wait(
    child: subprocess.Popen[bytes], watched: Iterable[Path], before: Mapping[Path, int]
) -> list[Path]:
    """Wait for a change, and return the changed files; none after a clean close."""
    while True:
        code = child.poll()
        if code == 0:
            return []
        now = times(watched)
        changed = [path for path in {**before, **now} if before.get(path) != now.get(path)]
        if changed:
            return sorted(changed)
        # Poll: no notification of changes works on all systems.
        time.sleep(_LOOK_S)


def times(directories: Iterable[Path]) -> dict[Path, int]:
    """Return the time (ns) of the last change of each source below the directories.

    Deleted directories and files are left out.
    """
    found = {}
    for directory in directories:
        for above, below, names in os.walk(directory):
            below[:] = [name for name in below if _counts(name)]
            for name in filter(_counts, names):
                path = Path(above, name)
                if path.suffix in _SUFFIXES:
                    with suppress(OSError):
                        found[path] = path.stat().st_mtime_ns
    return found


def _counts(name: str) -> bool:
    return name not in _SKIPPED and not name.startswith(".")
