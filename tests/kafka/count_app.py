"""Kafka Streams itself, as an application to run beside ours: `CountApp.java`, compiled once."""

from __future__ import annotations

import fcntl
import os
import subprocess
import zlib
from pathlib import Path

from tests.kafka.broker import QUICK, jars

SOURCE = Path(__file__).parent / "streams" / "CountApp.java"
_SMALL = ("-Xmx256m", "-XX:+UseSerialGC")


def command() -> list[str]:
    """Return the command that starts the application, but for its options. Raises RuntimeError when it cannot be compiled."""
    return ["java", *_SMALL, *QUICK, "-cp", f"{_classes()}:{jars()}/*", "CountApp"]


def _classes() -> Path:
    """Return the directory of the classes, which the first one that asks makes."""
    lib = jars()
    made = lib.parent / f"count-app-{zlib.crc32(SOURCE.read_bytes()):08x}"
    with (lib.parent / "count-app-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.is_dir():
            fresh = lib.parent / f"count-app-{os.getpid()}"
            compiler = ["javac", "-nowarn", "-d", str(fresh), "-cp", f"{lib}/*", str(SOURCE)]
            done = subprocess.run(compiler, capture_output=True, text=True, check=False)  # noqa: S603 - our own
            if done.returncode != 0:
                raise RuntimeError(f"{SOURCE.name} could not be compiled:\n{done.stderr}")
            fresh.rename(made)
    return made
