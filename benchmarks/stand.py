"""Run map and window many times on a real Kafka with compressed input, and count runs that stand still.

A small `buffered_records_per_partition` pauses partitions all the time, often while a request is under way. Half of the runs go through a proxy
that delays each answer. A run stands still when nothing is processed for `--patience` seconds, or when the app mended a stalled fetch itself.
`--other` tries another checkout, with its kernel built. The exit code is 1 when a run stood still. Needs Java 17 and Maven.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

# A script's directory comes first on the path, and has an `actors` of its own. The child of `--other` runs that checkout's library.
sys.path.insert(0, os.environ.get("KS_STAND_TREE", str(Path(__file__).resolve().parent.parent)))

from ks_actors import App, Batch, StreamsConfig, serdes
from ks_actors.dsl import Consumed, Materialized, Produced, StreamsBuilder, TimeWindows
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog, KafkaOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.metrics import MetricValues
    from ks_actors.topology import Topology

TOPIC, PARTITIONS = "stand-input", 4
APPS = ("map", "window")


def main() -> int:
    """Start a broker and the runs; return the exit code."""
    options = _options()
    if options.child:
        return asyncio.run(_runs(options))
    from tests.kafka.broker import Broker, free_ports  # noqa: PLC0415 - the child may run a checkout without it

    found: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="ks-stand-") as directory:
        (listening,) = free_ports(1)
        broker = Broker(Path(directory) / "broker")
        broker.start()
        delayed = Broker(Path(directory) / "delayed", settings={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{listening}"}, node=2)
        delayed.start()
        try:
            for way, address, proxy in (("direct", broker.bootstrap, ()), ("delayed", f"127.0.0.1:{listening}", (listening, delayed.bootstrap))):
                command = [sys.executable, __file__, "--child", address, *sys.argv[1:]]
                if proxy:
                    command += ["--proxy", *map(str, proxy)]
                tree = {"KS_STAND_TREE": str(options.other.resolve())} if options.other else {}
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env={**os.environ, **tree})  # noqa: S603 - our own
                if done.returncode not in (0, 1):
                    return done.returncode
                found |= {f"{way}_{name}": count for name, count in json.loads(done.stdout.splitlines()[-1]).items()}
        finally:
            broker.kill()
            delayed.kill()
    print(json.dumps(found), flush=True)
    return int(any(count for name, count in found.items() if name.endswith("stood")))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200, help="how many runs (default 200)")
    parser.add_argument("--records", type=int, default=400_000, help="records of the input (default 400,000)")
    parser.add_argument("--buffered", type=int, default=1_000, help="buffered_records_per_partition (default 1,000)")
    parser.add_argument("--codec", default="lz4", choices=("gzip", "snappy", "lz4", "zstd"), help="of the input (default lz4)")
    parser.add_argument("--delay-ms", type=float, default=20.0, help="of each answer through the proxy (default 20)")
    parser.add_argument("--patience", type=float, default=8.0, help="seconds without progress after which a run stands still (default 8)")
    parser.add_argument("--other", type=Path, help="try this checkout's library")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--proxy", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def _topology(name: str) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(TOPIC, Consumed(serdes.STRING, serdes.STRING))
    if name == "map":
        stream.map_values(str.upper).to("stand-output", Produced(serdes.STRING, serdes.STRING))
    else:
        windows = stream.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10_000))
        windows.count(Materialized("counts", serdes.STRING, serdes.LONG))
    return builder.build()


async def _runs(options: argparse.Namespace) -> int:
    """Run half of the runs against one broker, and print how many there were and stood still."""
    proxy = None
    if options.proxy:
        proxy = await _delaying(int(options.proxy[0]), options.proxy[1], options.delay_ms / 1000)
    await _load(options)
    stood = 0
    runs = max(1, options.runs // 2)
    for number in range(runs):
        still = await _run(options, APPS[number % len(APPS)], f"stand-{number}-{time.time_ns()}")
        stood += still
        print(f"run {number + 1} of {runs}: {'STOOD STILL' if still else 'done'}, {stood} stood still so far", file=sys.stderr, flush=True)
    if proxy is not None:
        proxy.close()
    print(json.dumps({"runs": runs, "stood": stood}), flush=True)
    return int(stood > 0)


async def _load(options: argparse.Namespace) -> None:
    """Write the input: values that stay large when compressed, as a chunk of a fetch is decompressed in a thread from 64 KiB on."""
    log = KafkaLog(options.child, options=KafkaOptions(compression=options.codec))
    await log.start()
    await log.create_topics([NewTopic(TOPIC, PARTITIONS), NewTopic("stand-output", PARTITIONS)])
    producer, draw = await log.producer(client_id="stand"), random.Random(1)  # noqa: S311 - values for a benchmark
    each = options.records // PARTITIONS
    for begin in range(0, each, 500):
        numbers = range(begin, min(each, begin + 500))
        for partition in range(PARTITIONS):
            keys: list[bytes | None] = [b"%d" % (number % 97) for number in numbers]
            values: list[bytes | None] = [draw.randbytes(60).hex().encode() for _ in numbers]
            batch = Batch(keys, values, [1_000_000 + number for number in numbers])
            await producer.send([Outgoing(TopicPartition(TOPIC, partition), batch)])
    await producer.close()
    await log.close()


async def _run(options: argparse.Namespace, name: str, application: str) -> bool:
    """Run an app over the whole input; return whether it stood still."""
    with tempfile.TemporaryDirectory(prefix="ks-stand-state-") as state:
        config = StreamsConfig(
            application_id=application,
            bootstrap_servers=options.child,
            state_dir=state,
            buffered_records_per_partition=options.buffered,
            auto_offset_reset="earliest",
        )
        app = App(_topology(name), config)
        async with app:
            return not await _progresses(options, app.metrics)


async def _progresses(options: argparse.Namespace, metrics: Callable[[], MetricValues]) -> bool:
    """Return whether all records are processed without a pause of `patience`, and no fetch had to be mended."""
    records = options.records // PARTITIONS * PARTITIONS
    last, since = -1.0, time.monotonic()
    while True:
        figures = metrics()
        if figures.get("stalls-mended-total", 0):
            return False
        done = figures["process-total"]
        if done >= records:
            return True
        if done != last:
            last, since = done, time.monotonic()
        elif time.monotonic() - since > options.patience:
            return False
        await asyncio.sleep(0.05)


async def _delaying(port: int, behind: str, delay_s: float) -> asyncio.Server:
    """Serve a port by the broker behind it, and hold each piece of its answers back for a while, in order."""
    host, _, number = behind.rpartition(":")

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wait_s: float) -> None:
        loop, due = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

        async def pour() -> None:
            while True:
                at, piece = await due.get()
                await asyncio.sleep(max(0.0, at - loop.time()))
                if not piece:
                    break
                writer.write(piece)
                await writer.drain()
            writer.close()

        pouring = asyncio.create_task(pour())
        with suppress(OSError):
            while piece := await reader.read(1 << 16):
                due.put_nowait((loop.time() + wait_s, piece))
        due.put_nowait((0.0, b""))
        with suppress(OSError):
            await pouring

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(number))
        # At the end of the program the loop cancels this; a callback of the streams would print that as an error.
        with suppress(asyncio.CancelledError):
            await asyncio.gather(copy(reader, back, 0.0), copy(there, writer, delay_s))

    return await asyncio.start_server(serve, "127.0.0.1", port)


if __name__ == "__main__":
    sys.exit(main())
