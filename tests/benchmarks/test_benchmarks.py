"""Every benchmark in `benchmarks/`, in small: nothing else runs them, and a broken one would be noticed when its figures are needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.kafka.broker import require_kafka

ROOT: Final = Path(__file__).resolve().parent.parent.parent
SCRIPTS: Final = ROOT / "benchmarks"

ALONE: Final = {
    "kernel": "--rounds 2",
    "actors": "--rounds 1 --share 0.01",
    "kernel_state": "--rounds 2",
    "memory": "--updates 2000 --stores 4 --tasks 2 --keys 100 --budget 1048576",
    "metrics": "--records 500 --rounds 1",
    "page": "--tasks 2 --rounds 1",
    "queries": "--records 2000 --rounds 1",
    "queries (weights)": "--weights --records 20000 --rounds 1",
    "reach": "--rounds 200",
    "runtime": "--rounds 1 --share 0.002",
    "snapshots": "--records 2000 --keys 100 --rounds 1",
    "spark": "--records 1000 --keys 100 --without-spark",
    "state": "--without-kafka --rounds 1 --updates 2000 --large-bytes 100000",
    "tasks": "--tasks 1 2 --seconds 0.2",
    "tracing": "--records 200 --rounds 1",
    "values": "--records 1000 --rounds 1",
}
"""Those that need no broker, with their options; the first one, which each run has, is cheap.

Words in brackets tell apart several cases of one benchmark.
"""

ON_KAFKA: Final = {
    "kafka": "--alone --reps 1 --records 1000 --keys 100 --apps map count --guarantees exactly_once_v2",
    "latency": "--only ours --rates 200 --partitions 1 --guarantees at_least_once --seconds 0.5 --warm-seconds 0.5 --idle-seconds 0.5",
    "processes": "--apps count --processes 1 2 --records 20000 --keys 1000",
    "queries (rate)": "--apart --modes leaderless --rate 200 --seconds 1 --warm-seconds 0.5 --rounds 1",
    "stand": "--runs 2 --records 4000",
    "stalls": "--codecs lz4 --bytes 1000000",
    "tokens": "--seconds 3 --rate 50 --late-ms 60000",
    "turns": f"{ROOT} --apps count --guarantees at_least_once --records 1000 --keys 100 --reps 1",
}
"""Those that start a broker."""

BY_OTHERS: Final = {
    "compared": "it needs the other tools; tests/examples runs our programs",
    "peer": "kafka and turns run it as the contender of this library",
    "nexmark": "it needs cargo to make its events; tests/judges/nexmark runs its queries",
}
"""Those that are not run by themselves, and why."""


def run(case: str, options: str) -> dict[str, object]:
    """Run a benchmark as a user does, and return its figures."""
    name = case.partition(" ")[0]
    command = [sys.executable, str(SCRIPTS / f"{name}.py"), *options.split()]
    # JVMs that live for seconds compile less than those that are measured.
    environment = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"} | os.environ
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment)  # noqa: S603 - our own command
    assert done.returncode == 0, f"{name} {options}: exit code {done.returncode}\n{done.stderr[-3000:]}"
    assert "Traceback (most recent call last)" not in done.stderr, f"{name} {options}:\n{done.stderr[-3000:]}"
    return figures(done.stdout.splitlines()[-1])


def figures(line: str) -> dict[str, object]:
    """Return the figures of a line: one JSON object, with a number at least, and without nan, which JSON does not have."""
    found: dict[str, object] = json.loads(line, parse_constant=lambda constant: pytest.fail(f"{constant} is no figure: {line}"))
    assert isinstance(found, dict), line
    values = [inner for value in found.values() for inner in (value.values() if isinstance(value, dict) else [value])]
    assert any(isinstance(value, int | float) and not isinstance(value, bool) for value in values), line
    return found


def test_each_benchmark_has_a_test() -> None:
    """A benchmark that is added gets small options here, or a reason to be left to others."""
    scripts = {path.stem for path in SCRIPTS.glob("*.py") if not path.name.startswith("_")}
    packages = {path.parent.name for path in SCRIPTS.glob("*/__main__.py")}
    known = {case.partition(" ")[0] for case in (*ALONE, *ON_KAFKA, *BY_OTHERS)}
    assert sorted(known) == sorted(scripts | packages)


@pytest.mark.extended
@pytest.mark.unmeasured
@pytest.mark.heavy("a benchmark")
@pytest.mark.parametrize("name", ALONE)
def test_benchmarks_give_their_figures(name: str) -> None:
    """Each of them ends well, and its last line is one JSON object with figures."""
    run(name, ALONE[name])


@pytest.mark.extended
@pytest.mark.unmeasured
@pytest.mark.heavy("a benchmark with a broker")
@pytest.mark.parametrize("name", ON_KAFKA)
def test_benchmarks_on_kafka_give_their_figures(name: str) -> None:
    """Each of them starts a broker, ends well, and its last line is one JSON object with figures."""
    require_kafka()
    run(name, ON_KAFKA[name])


@pytest.mark.parametrize("module", ["benchmarks.nexmark", "benchmarks.nexmark.app"])
def test_nexmark_says_its_options(module: str) -> None:
    """Both parts of the benchmark begin, as far as they do without events."""
    done = subprocess.run([sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    assert done.returncode == 0, done.stderr
    assert "--quer" in done.stdout
