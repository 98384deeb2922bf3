"""A real registry, Apicurio's, which Maven fetches the first time: 110 MB."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.kafka.broker import free_ports

# The newest version that runs on Java 17.
VERSION: Final = "2.6.13.Final"
_NAME: Final = f"apicurio-registry-app-{VERSION}"
_ARTIFACT: Final = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
_STARTED_S: Final = 120


def _directory() -> Path:
    """Return the directory of the registry's jars; fetch them the first time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ks-actors-tests" / _NAME
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache / "app").exists():
            fresh = cache / f"fresh-{os.getpid()}"
            command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={fresh}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own
            if done.returncode != 0:
                raise RuntimeError(f"mvn failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
            with tarfile.open(fresh / f"{_NAME}-all.tar.gz") as archive:
                archive.extractall(fresh / "app", filter="data")
            (fresh / "app").rename(cache / "app")
            shutil.rmtree(fresh)
    return cache / "app"


@contextmanager
def apicurio(directory: Path) -> Iterator[str]:
    """Run a registry in memory while the block runs; yield its address."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        pytest.fail(f"a real registry is NOT TESTED: no {' and no '.join(missing)} on this machine")
    (port,) = free_ports(1)
    options = ["-Xmx384m", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"]
    with (directory / "registry.log").open("wb") as log:
        command = ["java", *options, "-jar", str(_directory() / f"{_NAME}-runner.jar")]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory)  # noqa: S603 - our own
        try:
            _await_start(process, f"http://127.0.0.1:{port}/apis/ccompat/v7", directory / "registry.log")
            yield f"http://127.0.0.1:{port}/apis/ccompat/v7"
        finally:
            process.terminate()
            process.wait()


def _await_start(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + _STARTED_S
    while True:
        try:
            urllib.request.urlopen(f"{url}/subjects", timeout=5).close()  # noqa: S310 - ours
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the registry did not start:\n{log.read_text()[-2000:]}") from None
            try:
                process.wait(0.5)
            except subprocess.TimeoutExpired:
                continue
        else:
            return
