"""The good and the bad query of benchmarks/queries.py.

As a script, it runs one or both on a Kafka. It prints "ready", begins at a line of stdin, and
prints "running", or the rate of the good query as JSON. It ends with its stdin.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import uvloop

from benchmarks._runtime_load import PARTITIONS, fill, records
from ks_actors import App, KsActorsError, StreamsBuilder, StreamsConfig, tune_gc
from ks_actors.dsl import Consumed, Produced
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.serdes import BYTES, STRING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ks_actors import Topology
    from ks_actors.log import Log

HEALTHY, LEADERLESS = "healthy", "leaderless"
FAULTS = ("raises", "waits", "paused", LEADERLESS)
GOOD, BAD = "good", "bad"
INPUTS = [f"{GOOD}-in", f"{BAD}-in"]
OUTPUTS = [f"{GOOD}-out", f"{BAD}-out"]
LOST = "lost-out"
"""A topic without a leader."""
KEYS = 10_000
WAIT_S = 1.0
LOOK_S = 0.02
TIMEOUT_S = 300


class Rate(NamedTuple):
    """Records per second, by the clock and by the CPU time of the process."""

    per_s: float
    per_cpu_s: float


def topology(mode: str, weight: int = 1) -> Topology:
    """Return a good query of this weight, and one that behaves by `mode`."""

    def work(value: bytes) -> bytes:
        return json.dumps(json.loads(value)).encode()

    def fail(_: bytes) -> bytes:
        raise ValueError("no record is good")

    async def wait(value: bytes) -> bytes:
        await asyncio.sleep(WAIT_S)
        return value

    builder = StreamsBuilder()
    functions: dict[str, Any] = {GOOD: work, BAD: {"raises": fail, "waits": wait}.get(mode, work)}
    for query, function in functions.items():
        with builder.query(query, weight=weight if query == GOOD else 1):
            source = builder.stream(f"{query}-in", Consumed(STRING, BYTES))
            output = LOST if (query, mode) == (BAD, LEADERLESS) else f"{query}-out"
            source.map_values(function).to(output, Produced(STRING, BYTES))
    return builder.build()


def config(directory: str, application_id: str = "queries", **settings: Any) -> StreamsConfig:
    """Return the config of an instance, with the settings given."""
    return StreamsConfig(
        application_id=application_id,
        state_dir=Path(directory),
        commit_interval_ms=100,
        processing_exception_handler="ks_actors.log_and_continue",
        **settings,
    )


async def make_topics(log: Log, count: int) -> None:
    """Create the topics anew, with `count` records in each input."""
    names = [*INPUTS, *OUTPUTS]
    if there := await log.describe_topics(names):
        await log.delete_topics(list(there))
    await log.create_topics([NewTopic(name, PARTITIONS) for name in names])
    if count:
        for name in INPUTS:
            await fill(log, _of_topic(name, count))


def _of_topic(name: str, count: int) -> Iterator[list[Outgoing]]:
    for batch in records(count, KEYS):
        yield [Outgoing(TopicPartition(name, one.partition.partition), one.batch) for one in batch]


def processed(app: App, query: str) -> float:
    """Return the number of records that a query of this instance has processed."""
    return app.metrics().total("process-total", {"query": query}, group="ks-actors-query-metrics")


async def begin(app: App, mode: str, queries: Sequence[str]) -> None:
    """Resume the queries of a paused instance, except one that `mode` leaves paused."""
    for query in queries:
        if (query, mode) != (BAD, "paused"):
            await app.resume(query=query)


async def measured(app: App, mode: str, count: int, queries: Sequence[str]) -> Rate:
    """Begin, return the rate of the good query over `count` records, and close."""
    began, used = time.perf_counter(), time.process_time()
    await begin(app, mode, queries)
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            await asyncio.sleep(LOOK_S)
            if processed(app, GOOD) >= count:
                break
    took, used = time.perf_counter() - began, time.process_time() - used
    # Calls in flight would hold up the close.
    with suppress(KsActorsError):
        await app.close(timeout_ms=100)
    return Rate(count / took, count / used)


def main() -> None:
    """Run the queries named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("bootstrap", "group", "state-dir", "mode", "queries"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--records", type=int, default=0, help="the good query's; 0: run without an end")
    options = parser.parse_args()
    # Each record that raises would be a traceback.
    logging.disable(logging.CRITICAL)
    tune_gc()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(options))


async def _run(options: argparse.Namespace) -> None:
    queries: list[str] = options.queries.split(",")
    settings = {"queries": options.queries, "bootstrap_servers": options.bootstrap}
    async with App(topology(options.mode), config(options.state_dir, options.group, **settings)) as app:
        await app.pause()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        if options.records and GOOD in queries:
            print(json.dumps(await measured(app, options.mode, options.records, queries)), flush=True)
        else:
            await begin(app, options.mode, queries)
            print("running", flush=True)
            await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    main()
