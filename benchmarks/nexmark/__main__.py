"""Nexmark's queries on ks-actors and on Kafka Streams, from the same topics: the results are compared, the rates told.

The table goes to stdout, progress to stderr; the last line of stdout is one JSON object. The exit code is 1 if results differ.
It starts a broker and stops it at the end. Needs Java 17, Maven and cargo the first time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.nexmark.compare import results
from benchmarks.nexmark.contenders import OURS, THEIRS, Measured, commands, run
from benchmarks.nexmark.events import load
from benchmarks.nexmark.queries import QUERIES, READS
from ks_actors.log import open_log
from tests.kafka.broker import Broker

EVENTS = 1_000_000
CACHE = 10 << 20
GUARANTEES = ("at_least_once", "exactly_once_v2")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--queries", nargs="+", choices=list(QUERIES), default=list(QUERIES), help="these only")
    parser.add_argument("--guarantees", nargs="+", choices=GUARANTEES, default=list(GUARANTEES), help="these only")
    parser.add_argument("--events", type=int, default=EVENTS, help=f"how many of all kinds (default {EVENTS:,})")
    parser.add_argument("--threads", type=int, default=1, help="threads, or workers, of each (default 1)")
    parser.add_argument("--cache", type=int, default=CACHE, help=f"bytes of updates that each may hold back (default {CACHE:,})")
    parser.add_argument("--timeout-s", type=float, default=600, help="of one run (default 600)")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="nexmark-broker-"))
    broker = Broker(directory, quick=False)
    try:
        broker.start()
        told = asyncio.run(measure(options, broker.bootstrap))
    finally:
        broker.kill()
        shutil.rmtree(directory, ignore_errors=True)
    Console(width=None if sys.stdout.isatty() else 120).print(table(told))
    print(json.dumps(told), flush=True)
    return int(not all(found["same"] for found in told["runs"]))


async def measure(options: argparse.Namespace, bootstrap: str) -> dict[str, Any]:
    """Load the events, and run each query on both sides in turn."""
    sides = commands()
    log = open_log(f"kafka://{bootstrap}")
    await log.start()
    told: dict[str, Any] = {"runs": []}
    try:
        told["events"] = await load(log, options.events)
        cases = [(query, guarantee) for query in options.queries for guarantee in options.guarantees]
        for number, (query, guarantee) in enumerate(cases):
            measured: dict[str, Measured] = {}
            # Take turns, so that a drift of the machine favors neither.
            for side in list(sides)[:: 1 if number % 2 == 0 else -1]:
                print(f"{query}, {guarantee}, {side}", file=sys.stderr, flush=True)
                measured[side] = await run(
                    log,
                    bootstrap,
                    sides[side],
                    query,
                    guarantee=guarantee,
                    threads=options.threads,
                    cache=options.cache,
                    timeout_s=options.timeout_s,
                )
            ours, theirs = [await results(log, query, measured[side].output) for side in (OURS, THEIRS)]
            for kind, more in (("only ours", ours - theirs), ("only theirs", theirs - ours)):
                if more:
                    print(f"{query}, {guarantee}: {more.total()} {kind}: {list(more)[:3]}", file=sys.stderr, flush=True)
            told["runs"].append(
                {
                    "query": query,
                    "guarantee": guarantee,
                    "same": ours == theirs and ours.total() > 0,
                    "results": ours.total(),
                    "ratio": round(measured[THEIRS].seconds / measured[OURS].seconds, 2),
                    **{side: {"seconds": round(found.seconds, 2), "cpu_s": round(found.cpu_s, 2)} for side, found in measured.items()},
                }
            )
            await log.delete_topics([name for name in await log.describe_topics(configs=False) if name.startswith(("out-", "nexmark-"))])
    finally:
        await log.close()
    return told


def table(told: dict[str, Any]) -> Table:
    """Return the table: events per second of what the query reads, and per second of CPU time (core-s)."""
    made = Table(title=f"Nexmark, {sum(told['events'].values()):,} events, one process each")
    sides = [f"{side} events/{unit}" for unit in ("s", "core-s") for side in (OURS, THEIRS)]
    for heading in ("query", "", "results", "", *sides[:2], "times", *sides[2:], "CPU ratio"):
        made.add_column(heading, justify="right")
    for found in told["runs"]:
        read = sum(told["events"][topic] for topic in READS[found["query"]])
        rates = [f"{read / found[side]['seconds']:,.0f}" for side in (OURS, THEIRS)]
        by_core = [f"{read / found[side]['cpu_s']:,.0f}" for side in (OURS, THEIRS)]
        share = f"{found[OURS]['cpu_s'] / found[THEIRS]['cpu_s']:.2f}"
        same = "same" if found["same"] else "DIFFERENT"
        guarantee = "EOS" if found["guarantee"] == GUARANTEES[-1] else "ALOS"
        made.add_row(found["query"], guarantee, f"{found['results']:,}", same, *rates, str(found["ratio"]), *by_core, share)
    return made


if __name__ == "__main__":
    sys.exit(main())
