"""Run applications on a real Kafka, side by side with Kafka Streams, and compare.

The table goes to stdout, progress to stderr; the last line of stdout is one JSON object. It starts
a broker and stops it at the end, unless you name one. Every run is its own process, with new
topics, a new group and an empty directory; contenders take turns. The output of the first run of
each is checked. Needs Java 17 and Maven, and Linux. On a shared machine look at the CPU per record:
it varies less than the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import _kafka_process as process
from benchmarks._kafka_inputs import INPUTS, PARTITIONS, Workload, beginning, load
from benchmarks._kafka_report import FLINK, OURS, SHORT, THEIRS, TRANSACTIONAL, Cell, Results, summary, table, write_markdown
from benchmarks._kafka_verify import outcome
from ks_actors.log import NewTopic, open_log
from tests.kafka.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.log import Log

RECORDS, QUICK_RECORDS = 1_000_000, 50_000
KEYS = 100_000
CACHE = 10 << 20  # Kafka Streams' default
REPS = 5
TIMEOUT_S = 600
WIDTH = 210
STATELESS = "map"
IN_FLINK = ("count", "wordcount")


def main() -> None:
    """Run the benchmark with the options of the command line."""
    options = _parse()
    contenders = {OURS: process.ours()}
    if not options.alone:
        contenders[THEIRS] = process.kafka_streams()
    if options.transactional:
        contenders[TRANSACTIONAL] = process.transactional(contenders[THEIRS])
    if options.flink:
        contenders[FLINK] = process.flink()
    with have_broker(options) as (bootstrap, pid):
        results = asyncio.run(measure(options, contenders, bootstrap, pid))
    command = shlex.join(["python", "benchmarks/kafka.py", *sys.argv[1:]])
    # A pipe has no width; do not squeeze a table in a file into 80 columns.
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table(results, command))
    if options.markdown:
        write_markdown(options.markdown, results, command)
    print(json.dumps(summary(results)), flush=True)


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of the options for measurements on Kafka.

    The first line of `description` is the program's description.
    """
    known = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    known.add_argument("--apps", nargs="+", choices=list(INPUTS), default=list(INPUTS), help="these only")
    known.add_argument("--guarantees", nargs="+", choices=list(SHORT), default=list(SHORT), help="these only")
    known.add_argument("--records", type=int, default=RECORDS, help=f"how many records go in (default {RECORDS:,})")
    known.add_argument("--keys", type=int, default=KEYS, help=f"over how many keys (default {KEYS:,})")
    known.add_argument("--reps", type=int, default=REPS, help=f"how often to measure everything (default {REPS})")
    known.add_argument("--cache", type=int, default=CACHE, help=f"how many bytes of updates each may hold back (default {CACHE:,}; 0: none)")
    known.add_argument("--threads", type=int, default=1, help="how many threads, or workers, each has (default 1)")
    known.add_argument("--bootstrap", help="a Kafka that is there, instead of one of its own")
    known.add_argument("--broker-pid", type=int, default=0, help="its process, for its CPU time")
    return known


def _parse() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--quick", action="store_true", help=f"once, with {QUICK_RECORDS:,} records: to see that it works")
    arguments.add_argument("--alone", action="store_true", help="without Kafka Streams")
    arguments.add_argument(
        "--transactional", action="store_true", help="also Kafka Streams with transactional stores (KIP-892), where there are stores"
    )
    arguments.add_argument("--flink", action="store_true", help=f"also Flink SQL, for {' and '.join(IN_FLINK)}")
    arguments.add_argument("--markdown", type=Path, metavar="PAGE", help="also write the section of this page")
    options = arguments.parse_args()
    if options.alone and options.transactional:
        arguments.error("--transactional is about Kafka Streams: leave out --alone")
    if options.quick:
        options.records, options.reps = min(options.records, QUICK_RECORDS), 1
    return options


@contextmanager
def have_broker(options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Provide a Kafka: its address and its process id."""
    if options.bootstrap:
        yield options.bootstrap, options.broker_pid
        return
    directory = Path(tempfile.mkdtemp(prefix="ks-bench-kafka-"))
    broker = Broker(directory, settings={"num.partitions": str(PARTITIONS)}, quick=False)
    try:
        broker.start()
        yield broker.bootstrap, broker.pid
    finally:
        broker.kill()
        shutil.rmtree(directory, ignore_errors=True)


async def measure(options: argparse.Namespace, contenders: dict[str, list[str]], bootstrap: str, pid: int) -> Results:
    """Run the cases of the options, `contenders` in turn."""
    results, workload = Results(), Workload(options.records, options.keys)
    cells = [Cell(app, guarantee) for app in options.apps for guarantee in options.guarantees]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    log = open_log(f"kafka://{bootstrap}")
    await log.start()
    try:
        # Refresh between runs, as a refresh thread would disturb them.
        with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as progress:
            task = progress.add_task("inputs", total=options.reps * sum(len(_taking_part(cell, contenders)) for cell in cells))
            progress.refresh()
            begin_ms = beginning()
            for name in dict.fromkeys(name for app in options.apps for name in INPUTS[app]):
                await load(log, workload, name, begin_ms)
            expected = {app: workload.expected(app) for app in options.apps}
            for rep in range(options.reps):
                for cell in cells:
                    # Alternate the order, so that a drift of the machine favors neither.
                    for contender in _taking_part(cell, contenders)[:: 1 if rep % 2 == 0 else -1]:
                        progress.update(task, description=f"{cell.key}, {contender}", refresh=True)
                        wanted = expected[cell.app] if rep == 0 else None
                        run = await _run(log, options, cell, workload, contenders[contender], bootstrap, pid, wanted)
                        results.add(cell, contender, run)
                        progress.advance(task)
            progress.update(task, description="done", refresh=True)
    finally:
        await log.close()
    return results


def _taking_part(cell: Cell, contenders: dict[str, list[str]]) -> list[str]:
    """Return the contenders of a cell.

    Without stores, transactional ones make no difference; Flink has two of the applications.
    """
    left_out = {TRANSACTIONAL} if cell.app == STATELESS else set[str]()
    left_out |= set() if cell.app in IN_FLINK else {FLINK}
    return [name for name in contenders if name not in left_out]


async def _run(
    log: Log,
    options: argparse.Namespace,
    cell: Cell,
    workload: Workload,
    contender: list[str],
    bootstrap: str,
    pid: int,
    wanted: tuple[int, ...] | None,
) -> process.Run:
    """Run a contender once, with new topics and state; check its output if the result is known."""
    name = f"{cell.key}-{time.time_ns()}"
    output, state = f"out-{name}", Path(tempfile.mkdtemp(prefix="ks-bench-"))
    await log.create_topics([NewTopic(output, PARTITIONS)])
    command = [
        *contender,
        *("--bootstrap", bootstrap, "--app", cell.app, "--guarantee", cell.guarantee, "--threads", str(options.threads)),
        *("--cache", str(options.cache)),
        *("--input", ",".join(workload.topic(each) for each in INPUTS[cell.app]), "--output", output, "--app-id", name, "--state-dir", str(state)),
    ]
    try:
        run = await asyncio.to_thread(process.run, command, pid, TIMEOUT_S)
        if run.said.get("uncommitted"):
            raise SystemExit(f"{contender[0]}, {cell.key}: {run.said['uncommitted']} records are not committed")
        found = None if wanted is None else await outcome(log, cell.app, output)
        if found != wanted:
            raise SystemExit(f"{contender[0]}, {cell.key}: the output is wrong: {found}, and it has to be {wanted}")
    finally:
        shutil.rmtree(state, ignore_errors=True)
        topics = await log.describe_topics()
        await log.delete_topics([topic for topic in topics if topic == output or topic.startswith(f"{name}-")])
    return run


if __name__ == "__main__":
    main()
