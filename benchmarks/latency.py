"""Measure latency and CPU time of counts at ordinary rates, side by side with Kafka Streams.

Both apps count with a changelog, without a cache, and commit every 100 ms. They share the machine
with one broker and the load. Latency is from the sending of a record to the sight of the count that
includes it, committed under exactly once. Both apps run all the time, and get the load in turns.
The table goes to stdout, progress to stderr. The last line of stdout is one JSON object: latencies
in ms, CPU time as a share of one core. Needs Java 17 and Maven, and Linux.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import _kafka_process as process
from benchmarks._kafka_process import environment
from benchmarks._kafka_report import OURS, SHORT, THEIRS
from benchmarks._latency_report import COMMIT_MS, Cell, Results, Seen, summary, table
from benchmarks.kafka import WIDTH, have_broker
from ks_actors.log import NewTopic, open_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

HERE = Path(__file__).resolve().parent
RATES = [10, 100, 500, 1_000, 5_000, 20_000, 50_000]
PARTITIONS = [4, 60]
SECONDS, WARM_SECONDS = 20.0, 5.0
IDLE_SECONDS = 10.0
# Enough load for the JVM to compile the code before the measurement.
_SETTLE_RATE, _SETTLE_SECONDS = 10_000, 15.0
_START_S, _END_S = 60, 120


def main() -> None:
    """Run the benchmark with the options of the command line."""
    options = _parse()
    contenders = {OURS: [sys.executable, str(HERE / "_latency_app.py"), *(f"--conf={each}" for each in options.conf)]}
    if options.only != "ours":
        contenders[THEIRS] = process.kafka_streams()
    if options.only == "theirs":
        del contenders[OURS]
    results = Results()
    groups = [(guarantee, partitions) for partitions in options.partitions for guarantee in options.guarantees]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Refresh between runs, as a refresh thread would disturb them.
    with have_broker(options) as (bootstrap, _), Progress(*columns, console=Console(stderr=True), auto_refresh=False) as progress:
        task = progress.add_task("start", total=len(groups) * len(options.rates) * len(contenders))
        for guarantee, partitions in groups:
            with ExitStack() as stack:
                progress.update(task, description=f"{SHORT[guarantee]}, {partitions} partitions: start", refresh=True)
                apps = {name: stack.enter_context(_app(command, bootstrap, guarantee, partitions)) for name, command in contenders.items()}
                for app in apps.values():
                    app.under(_SETTLE_RATE, _SETTLE_SECONDS, 0)
                time.sleep(WARM_SECONDS)
                results.idle[guarantee, partitions] = _cpu_shares(apps, options.idle_seconds)
                for rate in options.rates:
                    cell = Cell(guarantee, partitions, rate)
                    for name, app in apps.items():
                        progress.update(task, description=f"{cell.key}, {name}", refresh=True)
                        results.cells.setdefault(cell, {})[name] = app.under(rate, options.seconds, options.warm_seconds)
                        progress.advance(task)
        progress.update(task, description="done", refresh=True)
    command = shlex.join(["python", "benchmarks/latency.py", *sys.argv[1:]])
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table(results, command))
    print(json.dumps(summary(results)), flush=True)


def _parse() -> argparse.Namespace:
    known = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    known.add_argument("--rates", nargs="+", type=int, default=RATES, help="records/s")
    known.add_argument("--guarantees", nargs="+", choices=list(SHORT), default=list(SHORT), help="these only")
    known.add_argument("--partitions", nargs="+", type=int, default=PARTITIONS, help="of the input")
    known.add_argument("--seconds", type=float, default=SECONDS, help=f"how long to measure at each rate (default {SECONDS:g})")
    known.add_argument("--warm-seconds", type=float, default=WARM_SECONDS, help=f"how long to send before that (default {WARM_SECONDS:g})")
    known.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS, help=f"how long to measure without records (default {IDLE_SECONDS:g})")
    known.add_argument("--only", choices=["ours", "theirs"], help="one contender")
    known.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of this library's app; may be repeated")
    known.add_argument("--bootstrap", help="a Kafka that is there, instead of one of its own")
    known.add_argument("--broker-pid", type=int, default=0, help=argparse.SUPPRESS)
    return known.parse_args()


class App:
    """A running contender and its topics; each record goes to all inputs."""

    def __init__(self, pid: int, bootstrap: str, inputs: Sequence[str], output: str, partitions: int, isolation: str) -> None:
        self.pid: int = pid
        self._to = ("--bootstrap", bootstrap, "--partitions", str(partitions))
        self._inputs = inputs
        self._output = output
        self._isolation = isolation

    def under(self, rate: int, seconds: float, warm_seconds: float) -> Seen:
        """Apply a load (records/s); return the measurements after the first `warm_seconds`."""
        records = max(1, int(rate * (warm_seconds + seconds)))
        about = [*self._to, "--records", str(records)]
        with ExitStack() as stack:
            watch = stack.enter_context(_python("_latency_watch.py", *about, "--topic", self._output, "--isolation", self._isolation))
            line_of(watch)
            load = stack.enter_context(_python("_latency_load.py", *about, "--topic", *self._inputs, "--rate", str(rate)))
            since = float(line_of(load)) + warm_seconds
            tell(watch, f"{since}\n")
            time.sleep(max(0.0, since - time.time()))
            (share,) = _cpu_shares({"it": self}, seconds).values()
            if load.wait(_END_S) != 0:
                raise SystemExit(f"the load of {rate} records/s could not be sent: it ended with {load.returncode}")
            if not (line := line_of(watch)):
                raise SystemExit(f"no results in {self._output} could be measured; what the watch said is above")
            seen = json.loads(line)
        return Seen(seen["p50"], seen["p99"], seen["p999"], seen["max"], share, records - seen["seen"])


@contextmanager
def _app(command: list[str], bootstrap: str, guarantee: str, partitions: int) -> Iterator[App]:
    """Run a contender with new topics and state."""
    name = f"latency-{time.time_ns()}"
    asyncio.run(_create(bootstrap, [NewTopic(f"{kind}-{name}", partitions) for kind in ("in", "out")]))
    state = Path(tempfile.mkdtemp(prefix="ks-bench-"))
    about = {"bootstrap": bootstrap, "app": "count", "input": f"in-{name}", "output": f"out-{name}", "app-id": name, "state-dir": str(state)}
    about |= {"guarantee": guarantee, "commit-ms": str(COMMIT_MS), "cache": "0", "mode": "stay"}
    arguments = [word for option, value in about.items() for word in (f"--{option}", value)]
    try:
        with _process([*command, *arguments]) as running:
            if line_of(running) != "running":
                raise SystemExit(f"{command[0]} has not started; what it said is above")
            isolation = "read_committed" if SHORT[guarantee] == "eos" else "read_uncommitted"
            yield App(running.pid, bootstrap, [f"in-{name}"], f"out-{name}", partitions, isolation)
    finally:
        shutil.rmtree(state, ignore_errors=True)


async def _create(bootstrap: str, topics: list[NewTopic]) -> None:
    log = open_log(f"kafka://{bootstrap}")
    await log.start()
    try:
        await log.create_topics(topics)
    finally:
        await log.close()


def _python(script: str, *arguments: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return _process([sys.executable, str(HERE / script), *arguments])


@contextmanager
def _process(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a process that ends when its stdin does, and pass on its stderr."""
    process = subprocess.Popen(  # noqa: S603 - ours
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE.parent, env=environment()
    )
    try:
        yield process
    finally:
        tell(process, "", last=True)
        try:
            process.wait(_START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def line_of(process: subprocess.Popen[str]) -> str:
    """Return the next line of a process's output; empty when it has ended."""
    return "" if process.stdout is None else process.stdout.readline().strip()


def tell(process: subprocess.Popen[str], line: str, *, last: bool = False) -> None:
    """Write a line to a process's input, and close it after the last one."""
    if process.stdin is not None:
        process.stdin.write(line)
        process.stdin.flush()
        if last:
            process.stdin.close()


def _cpu_shares(apps: dict[str, App], seconds: float) -> dict[str, float]:
    """Return each app's share of one core during `seconds`."""
    before, began = {name: process.cpu_of(app.pid) for name, app in apps.items()}, time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - began
    return {name: (process.cpu_of(app.pid) - before[name]) / elapsed for name, app in apps.items()}


if __name__ == "__main__":
    main()
