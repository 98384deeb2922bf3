"""The cases of the runtime benchmark, and their targets."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks._kafka_process import environment

ROOT = Path(__file__).resolve().parent.parent
RECORDS = 1_000_000
KEYS = 100_000
FLIGHTS = 336_776


@dataclass(frozen=True)
class Target:
    """The target of a case's median figure; `name` is its name in the JSON."""

    name: str
    bound: float
    at_most: bool = False

    def met(self, figure: float) -> bool:
        """Return whether the target is met."""
        return figure <= self.bound if self.at_most else figure >= self.bound


@dataclass(frozen=True)
class Case:
    """One measurement in its own process, in one of `every` rounds.

    `figures` maps the table's rows to the child's names for them. `targets` has the targets of some
    figures; None puts a figure without a target into the JSON.
    """

    key: str
    module: str
    figures: dict[str, str]
    arguments: dict[str, Any] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    every: int = 1

    def run(self) -> dict[str, float]:
        """Run it in a fresh process."""
        if self.module == "startup":
            command = [sys.executable, "-m", "benchmarks._runtime_startup", str(time.monotonic_ns())]
        else:
            command = [sys.executable, "-m", "benchmarks._runtime_child", self.module, json.dumps(self.arguments)]
        done = subprocess.run(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 - ourselves
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed with {done.returncode}")
        figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return figures


def plan(share: float) -> tuple[Case, ...]:
    """Return the cases, with that share of the records."""
    total = int(RECORDS * share)
    log = f"{total:,} records of 100 bytes, {KEYS:,} keys, 4 partitions, log in memory"
    alos = {"guarantee": "at_least_once", "total": total, "keys": KEYS}
    eos = {**alos, "guarantee": "exactly_once_v2"}
    calls = int(200_000 * share)
    commits = max(20, int(200 * share))
    return (
        Case(
            "map",
            "map",
            {"per_s": f"map, records/s: JSON, filter, JSON; at least once; {log}"},
            alos,
            {"per_s": Target("map_per_s", 400_000)},
        ),
        Case("map_gc", "map", {"per_s": "map, records/s: the same; at least once, garbage collector tuned"}, {**alos, "tuned": True}),
        Case("map_eos", "map", {"per_s": "map, records/s: the same; exactly once, commit every 100 ms"}, eos),
        Case(
            "count",
            "count",
            {"per_s": f"count, records/s: by key, RocksDB, changelog; at least once; {log}"},
            alos,
            {"per_s": Target("count_per_s", 200_000)},
        ),
        Case("count_gc", "count", {"per_s": "count, records/s: the same; at least once, garbage collector tuned"}, {**alos, "tuned": True}),
        Case("count_eos", "count", {"per_s": "count, records/s: the same; exactly once, commit every 100 ms"}, eos),
        Case(
            "pause",
            "pause",
            {
                "p99_ms": f"pause of workers for a commit, p99, ms: count, {int(RECORDS * share):,} keys in state, each 100 ms, {commits} commits",
                "max_ms": "the same, the longest in ms",
                "commit_ms": "a whole commit in ms (workers go on meanwhile)",
            },
            {"keys": int(RECORDS * share), "commits": commits},
            {"p99_ms": Target("commit_pause_p99_ms", 2.0, at_most=True)},
            every=2,
        ),
        Case(
            "async",
            "async",
            {"per_s": f"async, records/s: 10 ms each, by key, 1,000 keys; exactly once; {calls:,} records"},
            {"guarantee": "exactly_once_v2", "total": calls, "keys": 1_000},
            {"per_s": Target("async_per_s", 20_000)},
        ),
        Case(
            "startup",
            "startup",
            {
                "total_s": "from the launch of the interpreter to the first record, s",
                "import_s": "of that: imports, s",
                "start_s": "of that: start of the app, to the first record, s",
            },
            targets={"total_s": Target("startup_s", 0.6, at_most=True)},
        ),
        Case(
            "flights",
            "flights",
            {
                "per_s": f"flights job, flights/s: exactly once, log and stores on disk, {int(FLIGHTS * share):,} flights",
                "rss_mb": "the same, most memory in MB",
            },
            {"limit": int(FLIGHTS * share)},
            {"per_s": Target("flights_per_s", 40_000), "rss_mb": Target("rss_mb", 300, at_most=True)},
        ),
    )
