"""The processes of the application."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import final

from tests.chaos.options import Options
from tests.chaos.supervised import Children
from tests.kafka.broker import free_ports

_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
CLEAN = frozenset({0, -signal.SIGTERM, 128 + signal.SIGTERM})


class Status(Enum):
    """The state of a member, as far as the tester decides it."""

    UP = "up"
    STOPPED = "stopped"
    ENDING = "ending"
    DOWN = "down"
    GONE = "gone"


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@final
class Member:
    """One process after the other, with the same state directory and the same log file."""

    def __init__(self, number: int, options: Options, work: Path, arguments: list[str], at: Callable[[], float]) -> None:
        self.number: int = number
        self.status: Status = Status.DOWN
        self._state = work / "state" / f"m{number}"
        self._log = work / "logs" / f"m{number}.log"
        words = [word.replace("{member}", str(number)) for word in shlex.split(options.app_cmd)]
        self._command = [*words, *arguments, "--state-dir", str(self._state)]
        self._apart: bool = options.apart
        self._at = at
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.children: Children | None = None
        if options.processes:
            (port,) = free_ports(1)
            self.children = Children(options.processes, port)
            self._command += ["--processes", str(options.processes), "--page", str(port)]

    def start(self, *, wipe: bool = False) -> None:
        """Start it, unless it runs."""
        if self.status not in (Status.DOWN, Status.GONE):
            return
        if wipe:
            shutil.rmtree(self._state, ignore_errors=True)
        self._state.mkdir(parents=True, exist_ok=True)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._starts += 1
        # As on a user's machine, a program is compiled when it first runs, not each time.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        if self._apart:
            # It is gone with the state: a new machine.
            temporary = self._state / "tmp"
            temporary.mkdir(exist_ok=True)
            environment["TMPDIR"] = str(temporary)
        with self._log.open("ab") as log:
            log.write(f"=== start {self._starts} at {self._at():.1f} s{' (state wiped)' if wipe else ''}\n".encode())
            log.flush()
            self._process = subprocess.Popen(  # noqa: S603 - our own
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=environment,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - the hook takes no lock, and nothing must outlive the tester
            )  # fmt: skip
        self.status = Status.UP

    def signal(self, number: signal.Signals) -> None:
        """Send it to the process and to those it has made."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def look(self) -> None:
        """Note the processes that a supervisor has started."""
        if self.children is not None:
            self.children.look(self._process.pid if self._process is not None and self._process.poll() is None else None)

    def ended(self) -> int | None:
        """Return the exit code; None while it runs."""
        return None if self._process is None else self._process.poll()

    def wait(self, seconds: float) -> int | None:
        """Wait for its end; return the exit code, None if it still runs."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(max(seconds, 0.001))
        return self.ended()

    def kill(self) -> None:
        """Kill -9; does nothing when it has ended."""
        if self._process is not None and self._process.poll() is None:
            self.signal(signal.SIGKILL)
            self._process.wait()
        self.status = Status.DOWN

    def tail(self, lines: int = 15) -> list[str]:
        """Return the last lines that it wrote."""
        return self._log.read_text(errors="replace").splitlines()[-lines:] if self._log.exists() else []
