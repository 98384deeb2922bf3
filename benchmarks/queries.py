"""Measure one of two queries while the other raises on each record, waits in async calls, or is paused.

Both queries have the same records. By default they share one instance, on the embedded log in memory. With `--apart` each runs in a process of
its own, on a real Kafka. The figures are records of the good query per second, by the clock and by the CPU time of its process, and their ratios
to those beside a healthy query: median (minimum-maximum). On a busy machine look at the CPU time. The last line of stdout is one JSON object.

    python benchmarks/queries.py [--apart] [--records 200000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._kafka_process import environment
from benchmarks._runtime_load import PARTITIONS, fill, records
from benchmarks.kafka import have_broker
from ks_actors import App, KsActorsError, StreamsBuilder, StreamsConfig
from ks_actors.dsl import Consumed, Produced
from ks_actors.log import NewTopic, Outgoing, TopicPartition, open_log
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.serdes import BYTES, STRING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors import Topology
    from ks_actors.log import Log

MODES = ("healthy", "raises", "waits", "paused")
GOOD, BAD = "good", "bad"
KEYS = 10_000
WAIT_S = 1.0
LOOK_S = 0.02
TIMEOUT_S = 300


class Rate(NamedTuple):
    """Records per second, by the clock and by the CPU time of the process."""

    per_s: float
    per_cpu_s: float


def main() -> None:
    """Measure with the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--apart", action="store_true", help="in a process for each query, on a Kafka")
    parser.add_argument("--records", type=int, default=200_000, help="of each query and run (default 200,000)")
    parser.add_argument("--rounds", type=int, default=3, help="how often to measure each (default 3)")
    parser.add_argument("--bootstrap", help="a Kafka that is there, instead of one of its own")
    parser.add_argument("--broker-pid", type=int, default=0, help="its process")
    parser.add_argument("--member", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # a traceback of the first record that raises, and a line a minute
    if options.member:
        query, mode, place, directory = options.member
        asyncio.run(_member(query, mode, place, directory, options.records))
        return
    rates: dict[str, list[Rate]] = {mode: [] for mode in MODES}
    if options.apart:
        with have_broker(options) as (bootstrap, _):
            for _ in range(options.rounds):
                for mode in MODES:
                    rates[mode].append(asyncio.run(_apart(mode, bootstrap, options.records)))
    else:
        for _ in range(options.rounds):
            for mode in MODES:
                rates[mode].append(asyncio.run(_together(mode, options.records)))
    figures: dict[str, float] = {}
    for mode in MODES:
        for name in Rate._fields:
            found, healthy = ([getattr(rate, name) for rate in rates[each]] for each in (mode, "healthy"))
            ratios = [one / other for one, other in zip(found, healthy, strict=True)]
            print(
                f"{mode}, {name}: {median(found):,.0f} ({min(found):,.0f}-{max(found):,.0f}), "
                f"{median(ratios):.2f} of healthy ({min(ratios):.2f}-{max(ratios):.2f})"
            )
            figures[f"{mode}_{name}"], figures[f"{mode}_{name}_ratio"] = round(median(found)), round(median(ratios), 3)
    print(json.dumps(figures))


def topology(mode: str) -> Topology:
    """Return a good query, and one that behaves by `mode`."""

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
        with builder.query(query):
            source = builder.stream(f"{query}-in", Consumed(STRING, BYTES))
            source.map_values(function).to("out", Produced(STRING, BYTES))
    return builder.build()


async def _together(mode: str, count: int) -> Rate:
    """Return the rate of the good query in one instance."""
    with tempfile.TemporaryDirectory() as directory:
        async with EmbeddedLog() as log:
            await _load(log, count)
            app = App(topology(mode), _config(directory), log=log)
            async with app:
                await app.pause()
                return await _measured(app, mode, count, (GOOD, BAD))


async def _measured(app: App, mode: str, count: int, queries: tuple[str, ...]) -> Rate:
    """Resume the queries, and return the rate of the good one."""
    began, used = time.perf_counter(), time.process_time()
    for query in queries:
        if (query, mode) != (BAD, "paused"):
            await app.resume(query=query)
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            await asyncio.sleep(LOOK_S)
            if app.metrics().total("process-total", {"query": GOOD}, group="ks-actors-query-metrics") >= count:
                break
    took, used = time.perf_counter() - began, time.process_time() - used
    # Calls in flight would hold up the close.
    with suppress(KsActorsError):
        await app.close(timeout_ms=100)
    return Rate(count / took, count / used)


def _config(directory: str, application_id: str = "queries", **settings: Any) -> StreamsConfig:
    return StreamsConfig(
        application_id=application_id,
        state_dir=Path(directory),
        commit_interval_ms=100,
        processing_exception_handler="ks_actors.log_and_continue",
        **settings,
    )


async def _load(log: Log, count: int) -> None:
    names = [f"{query}-in" for query in (GOOD, BAD)]
    await log.create_topics([NewTopic(name, PARTITIONS) for name in (*names, "out")])
    for name in names:
        await fill(log, _of_topic(name, count))


def _of_topic(name: str, count: int) -> Iterator[list[Outgoing]]:
    for batch in records(count, KEYS):
        yield [Outgoing(TopicPartition(name, one.partition.partition), one.batch) for one in batch]


# --- as processes ---------------------------------------------------------------------------------


async def _apart(mode: str, bootstrap: str, count: int) -> Rate:
    """Return the rate of the good query, in a process beside that of the other."""
    log = open_log(f"kafka://{bootstrap}")
    await log.start()
    try:
        if there := await log.describe_topics(["good-in", "bad-in", "out"]):
            await log.delete_topics(list(there))
        await _load(log, count)
    finally:
        await log.close()
    group = f"queries-{time.time_ns()}"
    with tempfile.TemporaryDirectory() as directory:
        members = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, __file__, "--records", str(count), "--member", query, mode, f"{bootstrap},{group}", f"{directory}/{query}"),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment(),
            )
            for query in (GOOD, BAD)
        ]  # fmt: skip
        try:
            for member in members:
                await _line(member)
            for member in members:
                if member.stdin is not None:
                    member.stdin.write(b"go\n")
            return Rate(*json.loads(await _line(members[0])))
        finally:
            for member in members:
                with suppress(ProcessLookupError):
                    member.kill()
                await member.wait()


async def _line(member: asyncio.subprocess.Process) -> bytes:
    lines = member.stdout or asyncio.StreamReader()
    async with asyncio.timeout(TIMEOUT_S):
        if not (line := await lines.readline()):
            raise SystemExit(f"a member has ended: exit code {await member.wait()}")
    return line


async def _member(query: str, mode: str, place: str, directory: str, count: int) -> None:
    bootstrap, group = place.split(",")
    config = _config(directory, group, queries=query, bootstrap_servers=bootstrap)
    async with App(topology(mode), config) as app:
        await app.pause()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        if query == GOOD:
            print(json.dumps(await _measured(app, mode, count, (GOOD,))), flush=True)
            return
        if mode != "paused":
            await app.resume()
        await asyncio.sleep(TIMEOUT_S)


if __name__ == "__main__":
    main()
