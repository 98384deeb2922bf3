"""Build the kernel with sanitizers, in a directory of its own, and say how a process has to be started that loads it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Final

from ks_actors.kernel._native import WITHOUT
from tests.fuzz.preload import VARIABLE
from tests.waiting import PATIENCE_S

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ROOT / "ks_actors" / "kernel/src"
WARNINGS: Final = ("-Wall", "-Wextra", "-Werror")
SANITIZED: Final = ("-O1", "-g", "-Wno-maybe-uninitialized", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


REPORTED: Final = 99
"""The exit code of a process that a sanitizer has ended."""


class NoSanitizer(Exception):
    """There is no compiler with sanitizers on this machine."""


def compiler() -> str:
    """Return the C compiler: gcc, or the one that CC names. Raises NoSanitizer."""
    found = shutil.which(os.environ.get("CC", "gcc"))
    if found is None:
        raise NoSanitizer(f"there is no C compiler {os.environ.get('CC', 'gcc')}: install gcc, or name one in CC")
    return found


def build(to: Path, *flags: str) -> Path:
    """Build the kernel into a directory, each file by itself, some at a time; return the file. Raises NoSanitizer with the compiler's message."""
    include = sysconfig.get_paths()["include"]
    objects, running = [], []
    try:
        for source in sorted(SOURCES.glob("*.c")):
            objects.append(to / f"{source.stem}.o")
            running.append(_begin("-c", "-fPIC", *WARNINGS, *flags, f"-I{include}", str(source), "-o", str(objects[-1])))
            if len(running) > (os.cpu_count() or 1):
                _end(running.pop(0))
        while running:
            _end(running.pop(0))
    finally:
        # When one file cannot be compiled the others are not waited for.
        for each in running:
            each.kill()
            each.communicate()
    built = to / f"_kernel{sysconfig.get_config_var('EXT_SUFFIX')}"
    _end(_begin("-shared", *flags, *map(str, objects), "-o", str(built)))
    return built


def _begin(*arguments: str) -> subprocess.Popen[str]:
    command = [compiler(), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # noqa: S603 - the compiler of this machine


def _end(running: subprocess.Popen[str]) -> None:
    said, _ = running.communicate(timeout=PATIENCE_S)
    if running.returncode != 0:
        raise NoSanitizer(f"{running.args!r} has failed: {said}")


def environment(built: Path) -> dict[str, str]:
    """Return the environment of a process that loads a kernel with sanitizers: each of Python's blocks comes from malloc, so that all are watched."""
    asked = [compiler(), "-print-file-name=libasan.so"]
    library = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout.strip()  # noqa: S603 - as above
    if not Path(library).is_absolute():
        raise NoSanitizer(f"{asked[0]} has no libasan.so: install libasan, or name a compiler in CC that has it")
    return {
        **os.environ,
        VARIABLE: str(built),
        WITHOUT: "0",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": f"detect_leaks=0:halt_on_error=1:allocator_may_return_null=1:exitcode={REPORTED}",
        "UBSAN_OPTIONS": f"halt_on_error=1:print_stacktrace=1:exitcode={REPORTED}",
    }
