"""Run applications on a real Kafka in 1, 2 and 4 processes; measure the rate, and the CPU per record.

The table goes to stdout, progress to stderr; the last line of stdout is one JSON object. The
ceiling is the rate of n processes, as a multiple of that of one that fills a core, at which the
cores are full: min(n, cores · c / (c + b)), where c and b are the CPU time per record of the
members and of the broker. The output of each run is checked record for record: counts against the
input, joins against the run of one process. Rates and CPU are those of the second half of the
input. On a shared machine look at the CPU per record and the ratios. Needs Linux and Java 17.

With `--kill`, a count in three processes runs under an even load, and members are killed by
SIGKILL. It measures how long the partitions of the killed member, and those of the others, are
without new results. A gap is without the typical gap between results, which is the commit interval
under exactly once. Exits with 1 if a record is lost, or doubled under exactly once, or if another
member has had a task of the killed one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import msgspec
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks import _kafka_process as process
from benchmarks import _process_kills as kills
from benchmarks._kafka_inputs import INPUTS, PARTITIONS, Workload, beginning, load
from benchmarks._member_app import Said, program
from benchmarks.kafka import WIDTH, have_broker
from ks_actors.log import IsolationLevel, NewTopic, TopicPartition, open_log

if TYPE_CHECKING:
    from ks_actors.log import Log

    Rows = Counter[tuple[bytes | None, bytes | None]]

RECORDS, KEYS = 1_000_000, 100_000
TIMEOUT_S = 300
_CORES = os.cpu_count() or 1


class Run(NamedTuple):
    """One run: the rate, CPU (µs per record) of members and broker, the largest share of a member."""

    per_s: float
    member_us: float
    broker_us: float
    largest_share: float


class Progress:
    """The progress of all members, by their lines."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, float]] = {}
        self.samples: list[tuple[float, int, float, float]] = []
        self._began = time.monotonic()

    @property
    def taken(self) -> int:
        return sum(taken for taken, _ in self._last.values())

    def hear(self, line: bytes, broker: int) -> None:
        """Take a line of a member, at the CPU time of the broker."""
        said = msgspec.json.decode(line, type=Said)
        self._last[said.pid] = said.taken, said.cpu
        used = sum(cpu for _, cpu in self._last.values())
        self.samples.append((said.moment, self.taken, used, process.cpu_of(broker)))

    def run(self) -> Run:
        """Return the figures of the second half; those of all, with the start, if it was over between two looks."""
        end = self.samples[-1]
        half = next(sample for sample in self.samples if 2 * sample[1] >= end[1])
        if half == end:
            half = (self._began, 0, 0.0, self.samples[0][3])
        seconds, records, cpu, broker = (last - first for last, first in zip(end, half, strict=True))
        largest = max(taken for taken, _ in self._last.values()) / self.taken
        return Run(records / seconds, cpu / records * 1e6, broker / records * 1e6, largest)


def main() -> None:
    """Run the benchmark with the options of the command line."""
    options = _parse()
    if options.kill:
        _kill(options)
        return
    with have_broker(options) as (bootstrap, pid):
        found = asyncio.run(_measure(options, bootstrap, pid))
    table = Table(title=f"{options.records:,} records, {PARTITIONS} partitions, {_CORES} cores")
    for name in ("app", "processes", "records/s", "x", "ceiling", "member µs", "x", "broker µs", "largest share"):
        table.add_column(name, justify="left" if name == "app" else "right")
    summary: dict[str, dict[str, float]] = {}
    for (app, guarantee, count), run in found.items():
        one = found[app, guarantee, options.processes[0]]
        ratio, cpu = run.per_s / one.per_s, run.member_us / one.member_us
        ceiling = min(count, _CORES * one.member_us / (run.member_us + run.broker_us))
        figures = (f"{run.per_s:,.0f}", f"{ratio:.2f}", f"{ceiling:.2f}", f"{run.member_us:.2f}", f"{cpu:.2f}", f"{run.broker_us:.2f}")
        table.add_row(f"{app} {guarantee}", str(count), *figures, f"{run.largest_share:.2f}")
        summary[f"{app} {guarantee} {count}"] = {**run._asdict(), "ratio": ratio, "ceiling": ceiling, "cpu_ratio": cpu}
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)
    print(json.dumps(summary), flush=True)


def _kill(options: argparse.Namespace) -> None:
    """Measure kills of members."""

    async def measure(bootstrap: str) -> dict[str, kills.Kills]:
        log = open_log(f"kafka://{bootstrap}")
        await log.start()
        try:
            return {
                guarantee: await kills.measure_kills(
                    log, guarantee, bootstrap, kills=options.kill, count=options.processes[0], rate=options.rate, keys=options.keys
                )
                for guarantee in options.guarantees
            }
        finally:
            await log.close()

    with have_broker(options) as (bootstrap, _), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(measure(bootstrap))
    title = f"kills of one of {options.processes[0]} members, {options.rate:,} records/s, {_CORES} cores; gaps in ms, median (min-max)"
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    for table in kills.tables(found, title):
        console.print(table)
    print(json.dumps(kills.summary(found)), flush=True)
    if any(each.wrong(guarantee) for guarantee, each in found.items()):
        sys.exit(1)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--apps", nargs="+", choices=["count", "join"], help="these only")
    parser.add_argument("--guarantees", nargs="+", choices=["at_least_once", "exactly_once_v2"], help="these only (default at_least_once)")
    parser.add_argument("--processes", nargs="+", type=int, help="in so many processes (default 1 2 4); ratios are to the first")
    parser.add_argument("--records", type=int, help=f"how many records go in (default {RECORDS:,})")
    parser.add_argument("--keys", type=int, help=f"over how many keys (default {KEYS:,})")
    parser.add_argument("--bootstrap", help="a Kafka that is there, instead of one of its own")
    parser.add_argument("--broker-pid", type=int, default=0, help="its process, for its CPU time")
    parser.add_argument(
        "--kill", type=int, nargs="?", const=kills.KILLS, metavar="KILLS",
        help=f"kill members so many times (default {kills.KILLS}) instead; by default of {kills.MEMBERS} processes, for both guarantees",
    )  # fmt: skip
    parser.add_argument("--rate", type=int, help=f"with --kill: records/s (default {kills.RATE:,})")
    options = parser.parse_args()
    if options.kill and (options.apps or options.records or len(options.processes or [1]) > 1):
        parser.error("--kill runs a count in one number of processes, at a --rate: leave out --apps and --records")
    if options.kill and not 2 <= (options.processes or [kills.MEMBERS])[0] <= kills.PARTITIONS:  # noqa: PLR2004 - one is killed, others go on
        parser.error(f"--kill needs 2 to {kills.PARTITIONS} --processes, each with a task")
    if options.rate and not options.kill:
        parser.error("--rate is about --kill: give that, too")
    by_default = {"guarantees": ["at_least_once"], "processes": [1, 2, 4], "keys": KEYS, "apps": ["count", "join"], "records": RECORDS}
    if options.kill:
        by_default |= {"guarantees": ["at_least_once", kills.EXACT], "processes": [kills.MEMBERS], "keys": kills.KEYS, "rate": kills.RATE}
    for name, value in by_default.items():
        setattr(options, name, getattr(options, name) or value)
    return options


async def _measure(options: argparse.Namespace, bootstrap: str, broker: int) -> dict[tuple[str, str, int], Run]:
    found = {}
    log = open_log(f"kafka://{bootstrap}")
    await log.start()
    try:
        workload = Workload(options.records, options.keys)
        for app in options.apps:
            for name in INPUTS[app]:
                await load(log, workload, name, beginning())
            for guarantee in options.guarantees:
                expected: Rows | None = _counts(workload) if app == "count" else None
                for count in options.processes:
                    run, output = await _run(log, app, guarantee, count, workload, bootstrap, broker)
                    print(f"{app} {guarantee} in {count}: {run.per_s:,.0f} records/s", file=sys.stderr)
                    expected = output if expected is None else expected
                    lost, added = (expected - output).total(), (output - expected).total()
                    if lost or added:
                        raise SystemExit(f"{app} in {count} processes: {lost} records of the output are lost, {added} are too many")
                    found[app, guarantee, count] = run
    finally:
        await log.close()
    return found


def _counts(workload: Workload) -> Rows:
    """Return the output of the count: each key with each number up to its count."""
    totals = Counter(row.key for row in workload.rows("kv"))
    return Counter((key, number.to_bytes(8)) for key, total in totals.items() for number in range(1, total + 1))


async def _run(log: Log, app: str, guarantee: str, count: int, workload: Workload, bootstrap: str, broker: int) -> tuple[Run, Rows]:
    """Run an app until its input is processed; return the figures and the output."""
    inputs = [workload.topic(name) for name in INPUTS[app]]
    name = f"processes-{app}-{count}-{time.time_ns()}"
    await log.create_topics([NewTopic(name, PARTITIONS)])
    total = sum((await _ends(log, inputs)).values())
    progress = Progress()
    async with program(count, app, inputs, name, {"bootstrap.servers": bootstrap, "processing.guarantee": guarantee}) as running:
        lines = running.stdout or asyncio.StreamReader()
        async with asyncio.timeout(TIMEOUT_S):
            while progress.taken < total:
                line = await lines.readline()
                if not line:
                    raise SystemExit(f"{app} in {count} processes has ended at {progress.taken} of {total} records")
                progress.hear(line, broker)
        running.send_signal(signal.SIGTERM)
        await running.communicate()
        if running.returncode:
            raise SystemExit(f"{app} in {count} processes: exit code {running.returncode}")
    return progress.run(), await _rows(log, name)


async def _ends(log: Log, topics: list[str]) -> dict[TopicPartition, int]:
    partitions = [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]
    return dict(await log.end_offsets(partitions, IsolationLevel.READ_COMMITTED))


async def _rows(log: Log, topic: str) -> Rows:
    """Return the committed records of a topic, by key and value."""
    ends, found = await _ends(log, [topic]), Counter[tuple[bytes | None, bytes | None]]()
    fetcher = log.fetcher(client_id="verify", isolation=IsolationLevel.READ_COMMITTED)
    fetcher.assign(dict.fromkeys(ends, 0))
    try:
        while any(fetcher.position(partition) < end for partition, end in ends.items()):
            for fetched in await fetcher.fetch(max_wait_ms=1_000):
                found.update(zip(fetched.batch.keys, fetched.batch.values, strict=True))
    finally:
        await fetcher.close()
    return found


if __name__ == "__main__":
    main()
