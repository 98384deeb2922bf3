"""A whole program as a user would write it.

Usage: python -m benchmarks._runtime_startup MOMENT, the time of its launch in ns of the monotonic
clock.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time

BEGAN = time.monotonic_ns()

import asyncio  # noqa: E402 - what an import takes is measured

import msgspec  # noqa: E402 - imports are part of the time

from ks_actors import App, Batch, StreamsConfig, serdes  # noqa: E402 - imports are part of the time
from ks_actors.dsl import Consumed, Produced, StreamsBuilder  # noqa: E402 - imports are part of the time
from ks_actors.log import NewTopic, Outgoing, TopicPartition, open_log  # noqa: E402 - imports are part of the time

IMPORTED = time.monotonic_ns()


class Payment(msgspec.Struct, frozen=True):
    """The input."""

    user: str
    cents: int


async def main() -> int:
    """Process one record; return the time of its processing."""
    seen: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def note(payment: Payment) -> Payment:
        seen.set_result(time.monotonic_ns())
        return payment

    builder = StreamsBuilder()
    payments = builder.stream("in", Consumed(serdes.STRING, serdes.json(Payment)))
    payments.map_values(note).to("out", Produced(serdes.STRING, serdes.json(Payment)))
    log = open_log("memory://")
    await log.start()
    await log.create_topics([NewTopic("in", 1), NewTopic("out", 1)])
    producer = await log.producer(client_id="startup")
    await producer.send([Outgoing(TopicPartition("in", 0), Batch([b"k"], [b'{"user":"k","cents":1}'], [0]))])
    with tempfile.TemporaryDirectory(prefix="ks-bench-") as directory:
        async with App(builder.build(), StreamsConfig(application_id="startup", state_dir=directory), log=log):
            moment = await seen
    await log.close()
    return moment


if __name__ == "__main__":
    launched = int(sys.argv[1])
    first = asyncio.run(main())
    print(json.dumps({"total_s": (first - launched) / 1e9, "import_s": (IMPORTED - BEGAN) / 1e9, "start_s": (first - IMPORTED) / 1e9}))
