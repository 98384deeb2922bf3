"""Contenders as processes, with resources measured from outside in the same way for all."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).resolve().parent
KAFKA_STREAMS, FLINK = HERE / "kafka_streams", HERE / "flink"
JAVA_OPTIONS = "-Xmx1g -XX:+UseG1GC"
# Flink looks into classes of the JDK, which its own scripts allow in this way.
_FLINK_OPTIONS = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.util", "java.util.concurrent", "java.nio", "java.net", "java.time")
]
_VERSION = re.compile(r"<(?:kafka|flink)\.version>(.+)</")
_TICK = os.sysconf("SC_CLK_TCK")
_LOOK_S = 0.05


class Run(NamedTuple):
    """One run of a contender: its own report, and the measurements from outside."""

    said: dict[str, Any]
    wall_s: float
    cpu_s: float
    rss_mb: float
    broker_cpu_s: float
    foreign_share: float
    """The share of the machine's CPU time used by neither the contender nor the broker."""


def ours(tree: Path = HERE.parent) -> list[str]:
    """Return the command line of this library's contender in a checkout."""
    return [sys.executable, str(tree / "benchmarks" / "peer.py")]


def version_of(peer: Path = KAFKA_STREAMS) -> str:
    """Return the version of a peer in Java that is measured, the one of its Maven project."""
    found = _VERSION.search((peer / "pom.xml").read_text(encoding="utf-8"))
    if found is None:
        raise SystemExit(f"{peer / 'pom.xml'} names no version")
    return found[1]


def kafka_streams() -> list[str]:
    """Compile Kafka Streams' contender and return its command line.

    Needs a JDK, and Maven for the first time.
    """
    return _java(KAFKA_STREAMS, "Bench", f"kafka-streams-{version_of(KAFKA_STREAMS)}.jar")


def flink() -> list[str]:
    """Compile Flink's contender and return its command line.

    Needs a JDK, and Maven for the first time.
    """
    return _java(FLINK, "FlinkBench", f"flink-runtime-{version_of(FLINK)}.jar", *_FLINK_OPTIONS)


def _java(sources: Path, name: str, jar: str, *options: str) -> list[str]:
    """Compile a contender in Java; `jar` is there when Maven has fetched the right version."""
    target = sources / "target"
    if not (target / "lib" / jar).exists():
        shutil.rmtree(target, ignore_errors=True)  # of another version
        subprocess.run(["mvn", "-q", "-B", "-f", str(sources / "pom.xml"), "package"], check=True)  # noqa: S603, S607 - what the machine has
    classes = target / "classes"
    classes.mkdir(exist_ok=True)
    subprocess.run(["javac", "-nowarn", "-d", str(classes), "-cp", f"{target}/lib/*", str(sources / f"{name}.java")], check=True)  # noqa: S603, S607 - likewise
    given = os.environ.get("JAVA_OPTS", JAVA_OPTIONS).split()
    return ["java", *given, *options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{classes}:{target}/lib/*", name]


def transactional(command: Sequence[str]) -> list[str]:
    """Return the command line of Kafka Streams' contender with transactional stores (KIP-892)."""
    return [*command, "--conf", "enable.transactional.statestores=true"]


def environment() -> dict[str, str]:
    """Return the environment of a contender, which keeps bytecode between runs as on a user's machine.

    Otherwise each start compiles what it imports, which takes longer than restoring.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run(command: Sequence[str], broker: int, timeout_s: float) -> Run:
    """Run a contender to its end. Raises SystemExit when it fails."""
    began, busy, at_broker = time.monotonic(), _busy_cpu(), cpu_of(broker)
    process = subprocess.Popen(  # noqa: S603 - ours
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=HERE.parent, start_new_session=True, env=environment()
    )
    peak, used = 0, 0.0
    while process.poll() is None:
        peak = max(peak, _resident(process.pid))
        used = max(used, cpu_of(process.pid))
        if time.monotonic() - began > timeout_s:
            process.kill()
        # It prints only a line or two, less than a pipe holds.
        time.sleep(_LOOK_S)
    output, errors = process.communicate()
    lines = [line for line in output.decode().splitlines() if line.startswith("{")]
    said: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    if process.returncode or not said.get("ok"):
        raise SystemExit(f"{' '.join(command)} failed with {process.returncode}: {said.get('error', '')}\n{errors.decode(errors='replace')[-3000:]}")
    wall = time.monotonic() - began
    cpu = max(used, float(said["cpu_s"]))
    at_broker = cpu_of(broker) - at_broker
    foreign = max(0.0, _busy_cpu() - busy - cpu - at_broker)
    return Run(said, wall, cpu, peak / 1024, at_broker, foreign / (wall * (os.cpu_count() or 1)))


def cpu_of(pid: int) -> float:
    """Return the CPU time (s) of a process; 0 when it has ended."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICK if fields else 0.0


def begun_at(pid: int) -> float:
    """Return the time (s, as of `time.monotonic`) at which a process began, to 10 ms; 0 when it has ended."""
    fields = _stat(pid)
    asleep = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    return int(fields[19]) / _TICK - asleep if fields else 0.0


def _stat(pid: int) -> list[str]:
    """Return the fields of a process behind its name; none when it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []


def _busy_cpu() -> float:
    """Return the CPU time (s) used by the machine."""
    fields = [int(field) for field in Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / _TICK


def _resident(pid: int) -> int:
    """Return the resident memory (KiB) of a process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), 0)
