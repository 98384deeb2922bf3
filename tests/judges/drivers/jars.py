"""Kafka's tests as a jar, which Maven fetches the first time."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.kafka.programs import java

# The newest version that is published with its tests.
VERSION: Final = "4.3.1"
_ARTIFACT: Final = f"org.apache.kafka:kafka-streams:{VERSION}:jar:test"
_FILE: Final = f"kafka-streams-{VERSION}-test.jar"


def missing_tests() -> str | None:
    """Say what the drivers need and this machine does not have."""
    needed = ["java", "javac"] if (_cache() / _FILE).exists() else ["java", "javac", "mvn"]
    missing = [tool for tool in needed if shutil.which(tool) is None]
    return f"no {' and no '.join(missing)} on this machine" if missing else None


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ks-actors-tests" / f"kafka-streams-tests-{VERSION}"


def driver_command(source: Path) -> list[str]:
    """Return the command of the driver that a file in Java calls, without its arguments."""
    cache = _cache()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache / _FILE).exists():
            fresh = cache / f"fresh-{os.getpid()}"
            _run(["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={fresh}"])
            (fresh / _FILE).rename(cache / _FILE)
            fresh.rmdir()
    return java(source, cache / _FILE, flags=("-Xmx300m",))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
