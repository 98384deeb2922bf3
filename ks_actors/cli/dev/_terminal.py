"""The prompt of `ks-actors dev`, around a process with the app that restarts with each change."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors.cli._reload import times
from ks_actors.system import check_posix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PROMPT: Final = "> "
_LOOK_S: Final = 0.3
_CLOSE_S: Final = 10.0


@final
class Terminal:
    """Read commands for a child, print its output above the prompt, and restart it.

    A change of a source closes the child as SIGTERM does. A child that does not end within 10 s,
    such as an endless loop, is killed. After a failure, the next child starts at the next change.
    """

    def __init__(self, command: Sequence[str], directories: Sequence[Path]) -> None:
        self._command = command
        self._directories = directories
        self._over = threading.Event()
        # Guards the child, and the line with the prompt.
        self._lock = threading.RLock()
        self._child: subprocess.Popen[str] | None = None
        self._asks = False
        self._readline: Any = None
        with suppress(ImportError):  # an optional part of Python
            self._readline = import_module("readline")

    def run(self) -> int:
        """Run until `quit`, the end of the input, or a signal; return the exit code.

        Raises ConfigError on Windows.
        """
        check_posix("`ks-actors dev`")
        for each in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, _interrupted)
        keeper = threading.Thread(target=self._keep)
        keeper.start()
        number = 0
        try:
            while not self._over.is_set():
                line = self._ask()
                if line.strip() == "quit":
                    self._pass(line)
                    break
                self._pass(line)
        except EOFError:
            self._show("")
        except KeyboardInterrupt:
            self._show("")
            number = signal.SIGTERM
        self._end(keeper, number)
        return 0

    def _ask(self) -> str:
        self._asks = True
        try:
            return input(_PROMPT)
        finally:
            self._asks = False

    def _pass(self, line: str) -> None:
        with self._lock:
            try:
                if self._child is not None and self._child.stdin is not None:
                    self._child.stdin.write(f"{line}\n")
                    self._child.stdin.flush()
                    return
            except OSError:
                pass  # it has ended at this moment
        if line.strip() not in {"", "quit"}:
            self._show("the app does not run: change a source, or quit")

    def _end(self, keeper: threading.Thread, number: int) -> None:
        """Let the child end: after the input, or at once by a signal (one more per Ctrl-C)."""
        self._over.set()
        while keeper.is_alive():
            try:
                with self._lock:
                    if self._child is not None and self._child.stdin is not None:
                        with suppress(OSError):
                            self._child.stdin.close()
                        if number:
                            self._child.send_signal(number)
                keeper.join()
            except KeyboardInterrupt:
                number = signal.SIGTERM

    # --- in a thread ------------------------------------------------------------------------------

    def _keep(self) -> None:
        while not self._over.is_set():
            before = times(self._directories)
            child = self._start()
            printer = threading.Thread(target=self._print, args=(child,))
            printer.start()
            changed = self._wait(child, before)
            with self._lock:
                self._child = None
            if changed:
                self._show(f"{', '.join(map(str, changed[:3]))} changed: the app starts again")
                self._close(child)
            child.wait()
            printer.join()
            if child.stdin is not None:
                with suppress(OSError):
                    child.stdin.close()

    def _start(self) -> subprocess.Popen[str]:
        with self._lock:
            # Ctrl-C goes to the whole process group, and the child gets SIGTERM in its place.
            self._child = subprocess.Popen(  # noqa: S603 - this program
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                process_group=0,
                env=os.environ | ({"FORCE_COLOR": "1"} if sys.stdout.isatty() else {}),
            )
            return self._child

    def _wait(self, child: subprocess.Popen[str], before: Mapping[Path, int]) -> list[Path]:
        """Wait for a change, and return the changed files; none at the end."""
        told = False
        while not self._over.wait(_LOOK_S):
            now = times(self._directories)
            changed = [path for path in {**before, **now} if before.get(path) != now.get(path)]
            if changed:
                return sorted(changed)
            if child.poll() is not None and not told:
                told = True
                with self._lock:
                    self._child = None
                self._show("the app has ended: it starts again when a source changes")
        return []

    def _close(self, child: subprocess.Popen[str]) -> None:
        child.terminate()
        try:
            child.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._show(f"the app did not end within {_CLOSE_S:g} s: it is killed")
            child.kill()

    def _print(self, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            self._show(line.rstrip("\n"))

    def _show(self, text: str) -> None:
        """Print a line above the prompt, and the prompt with its text again."""
        with self._lock, suppress(OSError, ValueError):
            if self._asks and sys.stdout.isatty():
                typed = "" if self._readline is None else self._readline.get_line_buffer()
                sys.stdout.write(f"\r\x1b[K{text}\n{_PROMPT}{typed}")
            else:
                sys.stdout.write(f"{text}\n")
            sys.stdout.flush()


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt
