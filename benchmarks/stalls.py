"""Measure event loop stalls while 64 MiB are sent to a real Kafka and read, per compression.

The table goes to stdout; the last line of stdout is one JSON object: the longest stall in ms, by
compression. A stall is the time between two turns of a task that wants one every 1 ms. `_cpu` is
the most CPU time of the loop's own thread between two turns: a busy machine makes stalls longer.
Needs Java 17 and Maven.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.kafka import have_broker
from ks_actors import Batch, tune_gc
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog, KafkaOptions

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from ks_actors.log import Fetcher, Producer
    from ks_actors.log.kafka.client._options import Compression

CODECS: tuple[Compression, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 4
SIZE, SEND = 64 << 20, 8 << 20
VALUE_BYTES = 100
TICK_S = 0.001


class Stall(NamedTuple):
    """The longest time, and the most CPU time of the loop's thread, between two turns.

    Both are in ms; `seconds` is the total time.
    """

    longest: float
    cpu: float
    took: float


def main() -> None:
    """Measure with the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--codecs", nargs="+", choices=CODECS, default=CODECS, help="these only")
    parser.add_argument("--bootstrap", help="a Kafka that is there, instead of one of its own")
    parser.add_argument("--broker-pid", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--bytes", type=int, default=SIZE, help="to send (default 64 MiB)")
    options = parser.parse_args()
    tune_gc()
    with have_broker(options) as (bootstrap, _), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = {codec: runner.run(_measure(bootstrap, codec, options.bytes)) for codec in options.codecs}
    table = Table("", "sending: longest stall ms", "CPU ms", "reading: longest stall ms", "CPU ms", "sent in s")
    for codec, (sending, reading) in found.items():
        table.add_row(codec, f"{sending.longest:.1f}", f"{sending.cpu:.1f}", f"{reading.longest:.1f}", f"{reading.cpu:.1f}", f"{sending.took:.2f}")
    Console().print(table)
    figures = {codec: round(sending.longest, 2) for codec, (sending, _) in found.items()}
    figures |= {f"{codec}_cpu": round(sending.cpu, 2) for codec, (sending, _) in found.items()}
    figures |= {f"{codec}_read": round(reading.longest, 2) for codec, (_, reading) in found.items()}
    figures |= {f"{codec}_read_cpu": round(reading.cpu, 2) for codec, (_, reading) in found.items()}
    print(json.dumps(figures), flush=True)


async def _measure(bootstrap: str, codec: Compression, size: int) -> tuple[Stall, Stall]:
    log = KafkaLog(bootstrap, options=KafkaOptions(compression=codec))
    await log.start()
    topic = f"stalls-{codec}-{time.time_ns()}"
    await log.create_topics([NewTopic(topic, PARTITIONS)])
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    producer = await log.producer(client_id="stalls")
    send = min(SEND, size)
    sends = [_outgoing(places, seed, send) for seed in range(size // send)]
    await producer.send([Outgoing(place, Batch([b"k"], [b"v"], [0])) for place in places])
    sending = await _watched(_send_all(producer, sends))
    fetcher = log.fetcher(client_id="stalls", isolation=IsolationLevel.READ_UNCOMMITTED)
    fetcher.assign(dict.fromkeys(places, 0))
    records = sum(len(outgoing.batch) for each in sends for outgoing in each)
    reading = await _watched(_read_all(fetcher, records))
    await fetcher.close()
    await producer.close()
    await log.close()
    return sending, reading


async def _send_all(producer: Producer, sends: Sequence[list[Outgoing]]) -> None:
    for each in sends:
        await producer.send(each)


async def _read_all(fetcher: Fetcher, records: int) -> None:
    while records > 0:
        fetched = await fetcher.fetch(max_wait_ms=100, max_records=10_000)
        records -= sum(len(one.batch) for one in fetched)


def _outgoing(places: list[TopicPartition], seed: int, size: int) -> list[Outgoing]:
    """Return half-repetitive JSON for all partitions."""
    source = random.Random(seed)  # noqa: S311 - no secrets here
    count = size // len(places) // (VALUE_BYTES + 8)
    made: list[Outgoing] = []
    for place in places:
        values = [b'{"id":%d,"user":"k%07d","pad":"%s"}' % (i, source.randrange(10**6), source.randbytes(32).hex().encode()) for i in range(count)]
        made.append(Outgoing(place, Batch([b"k%07d" % i for i in range(count)], values, [1_000_000] * count)))
    return made


async def _watched(work: Coroutine[object, object, None]) -> Stall:
    """Await some work, and return the stalls of the loop in that time."""
    task = asyncio.create_task(work)
    longest = most = 0.0
    began = last = time.perf_counter()
    worked = time.thread_time()
    while not task.done():
        await asyncio.sleep(TICK_S)
        now, cpu = time.perf_counter(), time.thread_time()
        longest, most = max(longest, now - last), max(most, cpu - worked)
        last, worked = now, cpu
    await task
    return Stall(longest * 1000, most * 1000, last - began)


if __name__ == "__main__":
    main()
