"""Programs in Java to run beside ours, compiled once: Kafka Streams itself as an application is `CountApp.java`."""

from __future__ import annotations

import fcntl
import os
import subprocess
import zlib
from pathlib import Path

from tests.kafka.broker import QUICK, jars, made_classes

SOURCES = Path(__file__).parent / "streams"
_SMALL = ("-Xmx256m", "-XX:+UseSerialGC")


def command() -> list[str]:
    """Return the command that starts the application, but for its options. Raises RuntimeError when it cannot be compiled."""
    return java(SOURCES / "CountApp.java")


def java(source: Path, *more: Path, flags: tuple[str, ...] = _SMALL) -> list[str]:
    """Return the command of a program that uses Kafka, and `more` jars. Raises RuntimeError when it cannot be compiled."""
    # Kafka's jars come first, as in the archive of a broker's classes: the JVM takes it for no other path.
    path = ":".join(map(str, (jars() / "*", *more)))
    return ["java", *flags, *QUICK, f"-XX:SharedArchiveFile={made_classes()}", "-cp", f"{path}:{_classes(source, path)}", source.stem]


def _classes(source: Path, path: str) -> Path:
    """Return the directory of a program's classes, which the first one that asks makes."""
    home = jars().parent
    made = home / f"{source.stem}-{zlib.crc32(source.read_bytes() + path.encode()):08x}"
    with (home / "programs-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.is_dir():
            fresh = home / f"{source.stem}-{os.getpid()}"
            compiler = ["javac", "-nowarn", "-d", str(fresh), "-cp", path, str(source)]
            done = subprocess.run(compiler, capture_output=True, text=True, check=False)  # noqa: S603 - our own
            if done.returncode != 0:
                raise RuntimeError(f"{source.name} could not be compiled:\n{done.stderr}")
            fresh.rename(made)
    return made
