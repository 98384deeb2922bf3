"""Nexmark's events: made by the generator of the crate nexmark, and loaded into three topics."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, cast

from ks_actors import Batch
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.records._partitioner import partitions_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.log import Log

VERSION: Final = "0.2.0"
PARTITIONS: Final = 4
HOUR_MS: Final = 3_600_000
# The generator makes ten events in a millisecond. With times of their own, they have one order in all topics together.
STRETCH: Final = 10
TOPICS: Final = {"Bid": ("bids", "auction"), "Auction": ("auctions", "id"), "Person": ("persons", "id")}
_BATCH: Final = 20_000


class Event(NamedTuple):
    topic: str
    key: str
    value: dict[str, Any]
    time: int


def generator() -> str:
    """Return the path of the generator. Cargo installs it the first time."""
    root = Path.home() / ".cache" / "ks-actors-tests" / f"nexmark-{VERSION}"
    program = root / "bin" / "nexmark"
    if not program.exists():
        if shutil.which("cargo") is None:
            raise SystemExit("no cargo on this machine: it installs the generator of events")
        command = ["cargo", "install", "nexmark", "--version", VERSION, "--features", "bin", "--root", str(root)]
        subprocess.run(command, check=True)  # noqa: S603 - our own
    return str(program)


def events(count: int, begin_ms: int) -> Iterator[Event]:
    """Yield events, the same ones each time. The generator's times count from now: event n is at n ms instead."""
    command = [generator(), "-n", str(count), "--no-wait", "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own
        for number, line in enumerate(cast("IO[str]", process.stdout)):
            ((kind, value),) = json.loads(line).items()
            topic, key = TOPICS[kind]
            if "expires" in value:
                value["expires"] = begin_ms + number + STRETCH * (value["expires"] - value["date_time"])
            value["date_time"] = begin_ms + number
            yield Event(topic, str(value[key]), value, value["date_time"])


def beginning() -> int:
    """Return the time of the first event (ms): a full hour, so that windows fall the same way each time, and recent, as Kafka deletes old records."""
    return int(time.time() * 1000) // HOUR_MS * HOUR_MS - 24 * HOUR_MS


async def load(log: Log, count: int) -> dict[str, int]:
    """Fill the three topics; return how many events each has."""
    await log.create_topics([NewTopic(topic, PARTITIONS, {"retention.ms": "-1"}) for topic, _ in TOPICS.values()])
    loaded = dict.fromkeys((topic for topic, _ in TOPICS.values()), 0)
    producer = await log.producer(client_id="load")
    made = events(count, beginning())
    while part := list(islice(made, _BATCH)):
        columns: dict[TopicPartition, list[Event]] = {}
        for event, number in zip(part, partitions_of([event.key.encode() for event in part], PARTITIONS), strict=True):
            columns.setdefault(TopicPartition(event.topic, number), []).append(event)
            loaded[event.topic] += 1
        await producer.send([Outgoing(partition, _batch(column)) for partition, column in columns.items()])
    await producer.close()
    return loaded


def _batch(column: list[Event]) -> Batch:
    values = [json.dumps(event.value, separators=(",", ":")).encode() for event in column]
    return Batch([event.key.encode() for event in column], values, [event.time for event in column])
