"""Send records at an even rate, each with its send time; for benchmarks/latency.py and benchmarks/queries.py.

Values are JSON. Prints the time (s) of the first one.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
import time
from pathlib import Path
from typing import Any

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import uvloop

from ks_actors import Batch
from ks_actors.log import Outgoing, TopicPartition, open_log

KEYS = 10_000
PAD = b"x" * 76
BUSY_RATE = 5_000
"""The highest rate (records/s) with a send every 1 ms.

Above it, sends are 5 ms apart, as with Kafka's producer by default.
"""


def main() -> None:
    """Send with the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True, nargs="+", help="each record goes to all of them")
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--rate", type=int, required=True, help="records/s")
    parser.add_argument("--records", type=int, required=True)
    options = parser.parse_args()
    gc.disable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(options))


async def _run(options: argparse.Namespace) -> None:
    log = open_log(f"kafka://{options.bootstrap}")
    await log.start()
    producer = await log.producer(client_id="load")
    source = random.Random(options.partitions)  # noqa: S311 - no secrets here
    tick = 0.001 if options.rate <= BUSY_RATE else 0.005
    places = [[TopicPartition(topic, number) for topic in options.topic] for number in range(options.partitions)]
    sent, pending = 0, set[asyncio.Task[Any]]()
    began = time.time()
    print(began, flush=True)
    while sent < options.records:
        due = min(options.records, int((time.time() - began) * options.rate) + 1)
        if due > sent:
            columns: dict[int, list[bytes | None]] = {}
            for _ in range(due - sent):
                number = int(source.random() * options.partitions)
                # A key is always in one partition.
                columns.setdefault(number, []).append(b"k%d-%d" % (number, int(source.random() * KEYS / options.partitions)))
            now = time.time()
            value, stamp = b'[%.6f,"%s"]' % (now, PAD), int(now * 1000)
            batches = [
                Outgoing(place, Batch(keys, [value] * len(keys), [stamp] * len(keys))) for number, keys in columns.items() for place in places[number]
            ]
            # Do not wait for the send: a slow broker must not reduce the load.
            task = asyncio.ensure_future(producer.send(batches))
            pending.add(task)
            task.add_done_callback(pending.discard)
            sent = due
        elapsed = time.time() - began
        await asyncio.sleep(max(sent / options.rate - elapsed, tick - elapsed % tick))
    await asyncio.gather(*pending)
    await producer.close()
    await log.close()


if __name__ == "__main__":
    main()
