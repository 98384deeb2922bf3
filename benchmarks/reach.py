"""Measure lookups of a store of another process beside local ones; or check that they never go back.

Without `--storm`, an app of another process counts some words; its `get` is called there, and from
here over one hop on loopback. Times are in ms, percentiles of `--rounds` calls one after another.
With `--storm SECONDS`, three processes of an app on a Kafka count words and are killed, frozen
and started again in turn, while counters are read at READ_COMMITTED by four readers. Exits with 1
if an active task answers with a lower count than an answer before. Needs Java 17 and Maven then.
The last line of stdout is one JSON object.

    python benchmarks/reach.py [--rounds 5000] [--storm 300]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import uvloop

from ks_actors import App, Batch, KsActorsError, StreamsBuilder, StreamsConfig, Topology
from ks_actors.dsl import Consumed, Grouped, Materialized
from ks_actors.log import IsolationLevel, Outgoing, TopicPartition
from ks_actors.query import Client
from ks_actors.records import partition as partition_of
from ks_actors.serdes import LONG, STRING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ks_actors.query import StoreQueries

KEYS: Final = tuple(f"key-{number}" for number in range(100))
FEW: Final = KEYS[:8]
PARTITIONS: Final = 4
SESSION_MS: Final = 6_000
ASKED_MS: Final = 30_000


def main() -> None:
    """Measure with the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5_000, help="lookups of each kind (default 5000)")
    parser.add_argument("--storm", type=float, metavar="SECONDS", help="kill and freeze members for that long")
    parser.add_argument("--seed", type=int, default=0, help="of the storm (default 0)")
    parser.add_argument("--serve", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if options.serve is not None:
            runner.run(serve(options.rounds, *options.serve))
            return
        figures = runner.run(measure(options.rounds)) if options.storm is None else storm(runner, options)
    print(json.dumps(figures))
    sys.exit(1 if figures.get("wrong") else 0)


def counting() -> Topology:
    """Return the topology of the app."""
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed(STRING, STRING)).group_by_key(Grouped(STRING, STRING))
    words.count(Materialized("counts", STRING, LONG))
    return builder.build()


async def timed(ask: Callable[[str], Awaitable[Any]], rounds: int) -> dict[str, float]:
    """Return percentiles, in ms, of the times of lookups one after another."""
    times = []
    for number in range(rounds):
        key = KEYS[number % len(KEYS)]
        began = time.perf_counter()
        if await ask(key) is None:
            sys.exit(f"{key} has no count")
        times.append((time.perf_counter() - began) * 1000)
    times.sort()
    return {"p50_ms": round(times[rounds // 2], 4), "p99_ms": round(times[rounds * 99 // 100], 4)}


# --- one hop ------------------------------------------------------------------------------------


async def measure(rounds: int) -> dict[str, Any]:
    """Return the times of lookups in another process, and in its own."""
    command = [sys.executable, __file__, "--rounds", str(rounds), "--serve"]
    child = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if child.stdout is None or child.stdin is None:
        raise RuntimeError("the child has no pipes")
    found = json.loads(await child.stdout.readline())
    async with Client([found["address"]]) as client:
        reader = client.store("counts", STRING, LONG)
        await timed(reader.get, min(rounds, 500))
        cpu, began = time.process_time(), time.perf_counter()
        hop = await timed(reader.get, rounds)
        hop["cpu_ms"] = round((time.process_time() - cpu) * 1000 / rounds, 4)
        hop["per_second"] = round(rounds / (time.perf_counter() - began))
        began = time.perf_counter()
        rows = 0
        for _ in range(10):
            rows += len(await reader.all())
        scan = {"rows_per_second": round(rows / (time.perf_counter() - began))}
    child.stdin.close()
    if await child.wait():
        sys.exit("the app of the child failed")
    for name, times in (("local", found["local"]), ("one hop", hop)):
        print(f"{name}: p50 {times['p50_ms']} ms, p99 {times['p99_ms']} ms")
    return {"local": found["local"], "hop": hop, "scan": scan}


async def serve(rounds: int, bootstrap: str = "", directory: str = "") -> None:
    """Run an app until the end of stdin; without a broker, tell its address and local times."""
    with tempfile.TemporaryDirectory() as own:
        config = StreamsConfig(
            application_id="reach",
            application_server="127.0.0.1:0",
            state_dir=directory or own,
            commit_interval_ms=100,
            session_timeout_ms=SESSION_MS,
            log=f"kafka://{bootstrap}" if bootstrap else "memory://",
        )
        async with App(counting(), config, topics={"words": PARTITIONS}) as app:
            if not bootstrap:
                for key in KEYS:
                    await app.send("words", key, "word")
                await app.wait_until_caught_up()
                local = await timed(app.store("counts", STRING, LONG).get, rounds)
                print(json.dumps({"address": str(app.endpoints()[0].endpoint), "local": local}), flush=True)
            await asyncio.to_thread(sys.stdin.read)


# --- a storm ------------------------------------------------------------------------------------


class Storm:
    """Counters that are read while the members of the app are killed and frozen."""

    def __init__(self, bootstrap: str, directory: Path, seed: int) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._random = Random(seed)  # noqa: S311 - to be repeatable is the point
        self._members: list[subprocess.Popen[bytes]] = []
        self.highest = dict.fromkeys(FEW, 0)
        self.figures = {"answers": 0, "failures": 0, "wrong": 0, "kills": 0, "freezes": 0, "sent": 0}

    def start(self, number: int) -> subprocess.Popen[bytes]:
        """Start a member."""
        command = [sys.executable, __file__, "--serve", self._bootstrap, str(self._directory / str(number))]
        return subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: S603 - our own

    async def run(self, seconds: float) -> dict[str, Any]:
        """Return how many answers there were, and how many were wrong."""
        from ks_actors.log import NewTopic  # noqa: PLC0415 - likewise
        from ks_actors.log.kafka import KafkaLog  # noqa: PLC0415 - the members need none

        try:
            async with KafkaLog(self._bootstrap) as log:
                await log.create_topics([NewTopic("words", PARTITIONS)])
                self._members = [self.start(number) for number in range(3)]
                config = StreamsConfig(application_id="reach", bootstrap_servers=self._bootstrap)
                async with Client.of_group(config, timeout_ms=60_000) as client:
                    reader = client.store("counts", STRING, LONG, isolation=IsolationLevel.READ_COMMITTED, timeout_ms=ASKED_MS)
                    await reader.get(FEW[0])
                    async with asyncio.TaskGroup() as group:
                        running = [group.create_task(self._send(log)), *(group.create_task(self._read(reader)) for _ in range(4))]
                        until = time.monotonic() + seconds
                        turn = 0
                        while time.monotonic() < until:
                            await asyncio.sleep(2 + self._random.random() * 3)
                            await self._fault(turn % 3)
                            turn += 1
                        await asyncio.sleep(2 * SESSION_MS / 1000)
                        for task in running:
                            task.cancel()
        finally:
            for member in self._members:
                member.send_signal(signal.SIGCONT)
                member.kill()
                member.wait()
        return self.figures | {"counted": sum(self.highest.values())}

    async def _fault(self, number: int) -> None:
        member = self._members[number]
        if self._random.random() < 0.5:  # noqa: PLR2004 - as often as not
            self.figures["kills"] += 1
            member.kill()
            member.wait()
            await asyncio.sleep(self._random.random() * 5)
            self._members[number] = self.start(number)
        else:
            self.figures["freezes"] += 1
            member.send_signal(signal.SIGSTOP)
            await asyncio.sleep(self._random.random() * 2 * SESSION_MS / 1000)
            member.send_signal(signal.SIGCONT)

    async def _send(self, log: Any) -> None:
        producer = await log.producer(client_id="storm")
        while True:
            key = self._random.choice(FEW)
            partition = TopicPartition("words", partition_of(key.encode(), PARTITIONS))
            with suppress(KsActorsError):
                await producer.send([Outgoing(partition, Batch([key.encode()], [b"word"], [time.time_ns() // 1_000_000]))])
                self.figures["sent"] += 1
            await asyncio.sleep(0.005)

    async def _read(self, reader: StoreQueries[str, int]) -> None:
        while True:
            key = self._random.choice(FEW)
            least = self.highest[key]
            try:
                count = await reader.get(key) or 0
            except KsActorsError as error:
                self.figures["failures"] += 1
                print(f"no answer: {error}", file=sys.stderr)
                continue
            self.figures["answers"] += 1
            if count < least:
                self.figures["wrong"] += 1
                print(f"{key}: {count} after {least}", file=sys.stderr)
            self.highest[key] = max(count, self.highest[key])
            await asyncio.sleep(0.01)


def storm(runner: asyncio.Runner, options: argparse.Namespace) -> dict[str, Any]:
    """Run a storm on a broker of its own."""
    from tests.kafka.broker import Broker  # noqa: PLC0415 - the first part needs no broker

    with tempfile.TemporaryDirectory() as directory:
        broker = Broker(Path(directory) / "broker")
        broker.start()
        try:
            return runner.run(Storm(broker.bootstrap, Path(directory), options.seed).run(options.storm))
        finally:
            broker.kill()


if __name__ == "__main__":
    main()
