"""Measure the cost of many tasks: CPU time per record, memory, open files, and start time.

It uses the embedded log. Each app reads a topic with one partition per task and writes one with as
many. Records trickle, a few at a time to random partitions, so that each slice of work has few of
them. The cost of the load itself is measured before the app starts, and subtracted. Each run is its
own process, with the garbage collector as `App.main` sets it. With `--busy 6`, six other processes
keep the machine busy. The table goes to stdout; its last line is one JSON object, also with the CPU
time of each start.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ks_actors import App, StreamsConfig, serdes
from ks_actors.app import tune_gc
from ks_actors.dsl import Consumed, Materialized, Produced, StreamsBuilder
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.records._batch import Batch

if TYPE_CHECKING:
    from ks_actors.log import Producer
    from ks_actors.topology import StoreType, Topology

TASKS = (10, 100, 1_000)
APPS = ("map", "count", "rocksdb", "shared")
RECORDS = 50
"""Records per send."""
PAUSE_S = 0.02
"""Seconds between sends."""
BUSY = "while True: pass"
FILES = Path("/proc/self/fd")


def topology(app: str) -> Topology:
    """Return the topology of an app: stateless, counting in memory, or counting in RocksDB.

    `rocksdb` has a database per task, `shared` one for all.
    """
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(serdes.STRING, serdes.STRING))
    if app == "map":
        stream.map_values(str.upper).to("out", Produced(serdes.STRING, serdes.STRING))
    else:
        store_type: StoreType = "in_memory" if app == "count" else "rocksdb"
        counts = stream.group_by_key().count(Materialized("counts", serdes.STRING, serdes.LONG, store_type=store_type))
        counts.to_stream().to("out", Produced(serdes.STRING, serdes.LONG))
    return builder.build()


async def trickle(producer: Producer, topic: str, tasks: int, seconds: float) -> tuple[int, float]:
    """Write records for `seconds`; return their number and the CPU seconds of the process."""
    random, sent = Random(1), 0  # noqa: S311 - to be repeatable is the point
    began, cpu = perf_counter(), process_time()
    while perf_counter() - began < seconds:
        batches: dict[int, list[bytes | None]] = {}
        for _ in range(RECORDS):
            batches.setdefault(random.randrange(tasks), []).append(b"key%d" % random.randrange(1_000))
        stamp = [1_000 + sent]
        await producer.send(
            [Outgoing(TopicPartition(topic, number), Batch(keys, [b"value"] * len(keys), stamp * len(keys))) for number, keys in batches.items()]
        )
        sent += RECORDS
        await asyncio.sleep(PAUSE_S)
    return sent, process_time() - cpu


async def run(app: str, tasks: int, seconds: float, directory: str) -> dict[str, float]:
    """Run an app with `tasks` tasks; return its figures."""
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic(topic, tasks) for topic in ("in", "out", "load")])
        producer = await log.producer(client_id="load")
        sent, load = await trickle(producer, "load", tasks, seconds / 2)
        load_per_record = load / sent
        before = _memory()
        layout = "shared" if app == "shared" else "task"
        config = StreamsConfig.of({"application_id": "tasks", "state_dir": Path(directory), "commit_interval_ms": 100, "state_layout": layout})
        built = topology(app)
        tune_gc()
        watch = Watch()
        began, begun = perf_counter(), process_time()
        async with App(built, config, log=log) as running:
            started, start_cpu = perf_counter() - began, process_time() - begun
            stood = await watch.end()
            files = _open_files()
            sent, cpu = await trickle(producer, "in", tasks, seconds)
            memory = _memory()
            await running.wait_until_caught_up(600_000)
            if running.metrics()["process-total"] != sent:
                raise RuntimeError(f"{sent} records were sent, {running.metrics()['process-total']} processed")
    return {
        "us_per_record": (cpu / sent - load_per_record) * 1e6,
        "start_s": started,
        "start_cpu_s": start_cpu,
        "stood_ms": stood * 1000,
        "files": files,
        "rss_mb": memory,
        "app_mb": memory - before,
    }


class Watch:
    """A watch of the event loop, from its creation to `end`: it notes the longest time without a turn."""

    def __init__(self) -> None:
        self._longest: float = 0.0
        self._task: asyncio.Task[None] = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        last = perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = perf_counter()
            self._longest, last = max(self._longest, now - last), now

    async def end(self) -> float:
        """Return the longest time (s)."""
        self._task.cancel()
        await asyncio.wait([self._task])
        return self._longest


def _open_files() -> int:
    """Return the number of open files of this process; 0 where it is not known."""
    return sum(1 for _ in FILES.iterdir()) if FILES.exists() else 0


def _memory() -> float:
    """Return the peak memory of this process, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(app: str, tasks: int, seconds: float, busy: int) -> dict[str, float]:
    """Measure in a separate process, beside `busy` busy ones."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]  # noqa: S603 - our own code
    try:
        command = [sys.executable, __file__, "--child", app, str(tasks), "--seconds", str(seconds)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - ourselves
    finally:
        for other in others:
            other.kill()
            other.wait()
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure with the options of the command line."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=6.0, help="how long records trickle in each run")
    arguments.add_argument("--tasks", type=int, nargs="+", default=list(TASKS), help="how many tasks")
    arguments.add_argument("--apps", choices=APPS, nargs="+", default=list(APPS))
    arguments.add_argument("--busy", type=int, default=0, help="how many other processes are busy meanwhile")
    arguments.add_argument("--child", nargs=2, metavar=("APP", "TASKS"), help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.child is not None:
        with tempfile.TemporaryDirectory(prefix="ks-actors-tasks-") as directory:
            print(json.dumps(asyncio.run(run(options.child[0], int(options.child[1]), options.seconds, directory))))
        return
    summary: dict[str, Any] = {}
    print(f"{'app':<8}{'tasks':>7}{'CPU µs/record':>16}{'start s':>10}{'loop stood ms':>15}{'files':>7}{'memory MB':>12}{'of it the app':>15}")
    for app in options.apps:
        for tasks in options.tasks:
            found = measure(app, tasks, options.seconds, options.busy)
            print(
                f"{app:<8}{tasks:>7}{found['us_per_record']:>16.0f}{found['start_s']:>10.2f}{found['stood_ms']:>15.0f}{found['files']:>7.0f}{found['rss_mb']:>12.0f}{found['app_mb']:>15.0f}",
                flush=True,
            )
            summary |= {f"{app}_{tasks}_{name}": round(value, 3) for name, value in found.items()}
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
