"""A process that looks like one on Windows, as far as Python's own modules tell: `python -m tests.ks_actors.system.windows PROGRAM`.

Modules and names that are missing there are missing here. Locks are real, by another name.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import importlib
import os
import runpy
import signal
import sys
import time
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any, NoReturn

POSIX = frozenset({"fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty", "uvloop"})
# They choose by the platform when they are imported, and would look for Windows' parts.
EARLY = (
    "aiokafka",
    "click",
    "ctypes",
    "msgspec",
    "multiprocessing.connection",
    "numpy",
    "pytest",
    "pytest_asyncio",
    "rich.console",
    "rocksdict",
    "shutil",
    "subprocess",
    "tempfile",
    "uuid",
    "uvicorn",
    "zoneinfo",
)
MISSING = {
    os: "O_CLOEXEC fork getuid geteuid killpg pread pwrite register_at_fork sched_getaffinity setsid sysconf",
    signal: "SIGALRM SIGCHLD SIGHUP SIGKILL SIGQUIT SIGUSR1 SIGUSR2 pthread_sigmask setitimer sigwait",
    time: "CLOCK_BOOTTIME CLOCK_MONOTONIC clock_gettime tzset",
}


class Absent(MetaPathFinder):
    """Find none of POSIX's modules."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname in POSIX:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def locking(file: int, mode: int, _: int) -> None:
    """Lock or unlock a file; another one's lock is the error that Windows has for it."""
    try:
        fcntl.flock(file, mode)
    except BlockingIOError as error:
        raise PermissionError(errno.EACCES, "Permission denied") from error


def pretend() -> None:
    """Make this process such a one."""

    def refuse(*_: object) -> NoReturn:
        raise NotImplementedError

    for name in EARLY:
        importlib.import_module(name)
    msvcrt: Any = ModuleType("msvcrt")
    msvcrt.locking, msvcrt.LK_NBLCK, msvcrt.LK_UNLCK = locking, fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN
    sys.modules["msvcrt"] = msvcrt
    for name in POSIX:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Absent())
    for module, names in MISSING.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    for name in ("add_signal_handler", "remove_signal_handler"):
        setattr(asyncio.SelectorEventLoop, name, refuse)
    sys.platform = "win32"


if __name__ == "__main__":
    pretend()
    runpy.run_module(sys.argv[1], run_name="__main__")
