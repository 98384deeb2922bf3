"""Joins of many partitions on a real Kafka, with the default settings: none may stand still.

`python -m tests.kafka.joins --partitions 60 --runs 10` joins two topics of so many partitions within a window, so often, each time with topics of its
own; with `--merge` it merges them. Each run has `--patience` seconds. When one takes longer, `App.waiting()` tells what for, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ks_actors import App, Consumed, JoinWindows, Produced, StreamJoined, StreamsBuilder, StreamsConfig
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog
from ks_actors.serdes import BYTES
from ks_actors.topology import Topology
from tests.kafka.broker import Broker
from tests.ks_actors.log.helpers import batch, group_name
from tests.waiting import until

_MINUTE_MS: Final = 60_000
_RECORDS: Final = 200
_BATCH: Final = 50


class Stuck(AssertionError):
    """A run that has not ended in time."""


def both(one: bytes, other: bytes) -> bytes:
    """Return a pair of values."""
    return one + b"+" + other


def topology(left: str, right: str, out: str, *, merge: bool) -> Topology:
    """Return a join of two topics within a window, or a merge of them."""
    builder = StreamsBuilder()
    one, other = (builder.stream(topic, Consumed(BYTES, BYTES)) for topic in (left, right))
    window = JoinWindows.of_time_difference_and_grace(_MINUTE_MS, _MINUTE_MS)
    stream = one.merge(other) if merge else one.join(other, both, window, StreamJoined(BYTES, BYTES, BYTES))
    stream.to(out, Produced(BYTES, BYTES))
    return builder.build()


async def feed(log: KafkaLog, topic: str, partitions: int, records: int) -> None:
    """Write so many records to each partition, each key once, in batches to one partition after the other."""
    producer = await log.producer(client_id="feeder")
    for first in range(0, records, _BATCH):
        numbers = range(first, min(records, first + _BATCH))
        for partition in range(partitions):
            keys = [b"%d" % number for number in numbers]
            await producer.send(
                [Outgoing(TopicPartition(topic, partition), batch(*keys, keys=keys, timestamps=[int(time.time() * 1000)] * len(keys)))]
            )
    await producer.close()


async def written(log: KafkaLog, topic: str, partitions: int) -> int:
    """Return how many records a topic has."""
    return sum((await log.end_offsets([TopicPartition(topic, number) for number in range(partitions)], IsolationLevel.READ_COMMITTED)).values())


async def join(log: KafkaLog, directory: Path, partitions: int, *, merge: bool, records: int = _RECORDS, patience: float = 60.0) -> float:
    """Process two topics that are fed while the app runs; return the seconds from its start to the last result. Raises Stuck."""
    name = group_name()
    left, right, out = (f"{topic}-{name}" for topic in ("left", "right", "out"))
    await log.create_topics([NewTopic(topic, partitions) for topic in (left, right, out)])
    wanted = records * partitions * (2 if merge else 1)
    config = StreamsConfig.of({"application_id": name, "state_dir": str(directory / name)})
    app = App(topology(left, right, out, merge=merge), config, log=log)
    began = time.monotonic()
    try:
        async with asyncio.timeout(patience):
            await app.start()
            async with asyncio.TaskGroup() as group:
                group.create_task(feed(log, left, partitions, records))
                group.create_task(feed(log, right, partitions, records))

            async def joined() -> bool:
                return await written(log, out, partitions) >= wanted

            await until(joined, within=patience)
    except TimeoutError:
        told = "\n".join(map(str, app.waiting())) or "nothing"
        done = await written(log, out, partitions)
        raise Stuck(f"{done} of {wanted} results after {patience:g} s; the app is {app.state.name} and waits for:\n{told}") from None
    finally:
        await app.close()
    return time.monotonic() - began


async def join_often(broker: Broker, directory: Path, options: argparse.Namespace) -> int:
    """Do all runs, and print how each goes; return how many were stuck."""
    stuck = 0
    for run in range(options.runs):
        # Each has a client of its own: one that is stuck is not to be in the way of the next.
        async with KafkaLog(broker.bootstrap) as log:
            try:
                took = await join(log, directory, options.partitions, merge=options.merge, records=options.records, patience=options.patience)
            except Stuck as error:
                stuck += 1
                print(f"run {run}: STUCK: {error}", flush=True)  # noqa: T201 - a report for people
            else:
                print(f"run {run}: {took:.1f} s", flush=True)  # noqa: T201 - a report for people
    return stuck


def main(arguments: Sequence[str]) -> int:
    """Do the runs; return 1 when one was stuck."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.joins", description=__doc__)
    parser.add_argument("--partitions", type=int, default=60, help="of each of the two topics")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--records", type=int, default=_RECORDS, help="per partition")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds that a run may take")
    parser.add_argument("--merge", action="store_true", help="merge the topics instead of joining them")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="joins-") as name:
        directory = Path(name)
        broker = Broker(directory / "broker")
        broker.start()
        try:
            stuck = asyncio.run(join_often(broker, directory, options))
        finally:
            broker.kill()
    kind = "merges" if options.merge else "joins"
    print(f"{options.runs} {kind} of 2 x {options.partitions} partitions, {stuck} stuck")  # noqa: T201 - a report for people
    return int(stuck > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
