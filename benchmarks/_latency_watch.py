"""Record the counts of one load and their times; for benchmarks/latency.py and benchmarks/queries.py.

Prints "ready" when it reads from the end of the topic. A line of stdin gives the time (s) from
which records count. Ends when it has seen all records, or none for long, and prints one JSON
object: latencies in ms.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import time
from typing import Any

import uvloop
from aiokafka import AIOKafkaConsumer, TopicPartition  # type: ignore[import-untyped]

QUIET_S = 30


def main() -> None:
    """Watch with the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--isolation", required=True, choices=["read_committed", "read_uncommitted"])
    options = parser.parse_args()
    # A garbage collection here would look like a pause of the app.
    gc.disable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(options))


async def _run(options: argparse.Namespace) -> None:
    consumer: Any = AIOKafkaConsumer(bootstrap_servers=options.bootstrap, isolation_level=options.isolation, enable_auto_commit=False)
    await consumer.start()
    partitions = [TopicPartition(options.topic, number) for number in range(options.partitions)]
    consumer.assign(partitions)
    await consumer.seek_to_end(*partitions)
    await asyncio.gather(*map(consumer.position, partitions))
    print("ready", flush=True)
    since = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    found: list[tuple[int, float]] = []
    last = time.monotonic()
    while len(found) < options.records and time.monotonic() - last < QUIET_S:
        fetched = await consumer.getmany(timeout_ms=1_000)
        now = time.time() * 1000
        for records in fetched.values():
            found += [(record.timestamp, now - record.timestamp) for record in records]
        if fetched:
            last = time.monotonic()
    await consumer.stop()
    since_ms = float(await since) * 1000
    measured = sorted(latency for stamp, latency in found if stamp >= since_ms)
    if not measured:
        raise SystemExit(f"no record of {options.topic} was seen")
    shares = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    figures = {name: measured[min(len(measured) - 1, int(len(measured) * share))] for name, share in shares.items()}
    print(json.dumps({**figures, "max": measured[-1], "seen": len(found)}), flush=True)


if __name__ == "__main__":
    main()
