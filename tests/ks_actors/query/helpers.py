"""A topology with a store of each kind, which its records change."""

from __future__ import annotations

import asyncio
from typing import TypedDict

from ks_actors import Consumed, Processor, ProcessorContext, Record, Topology, Window, Windowed, serdes, stores
from ks_actors.log import IsolationLevel
from ks_actors.testing import AppHarness
from ks_actors.topology import StoreType

ENGINES = ("rocksdb", "in_memory")
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
LEVELS = (COMMITTED, UNCOMMITTED)
STRINGS = Consumed(serdes.STRING, serdes.STRING)
SECOND = 1000
HOUR = 3_600_000
NAMES = ("plain", "timed", "window", "timed window", "lists", "versioned", "session", "duplicates")


def store_name(name: str) -> str:
    return name.replace(" ", "-")


class Puts(Processor[str, str, str, str]):
    """Put each value in all stores, its window being that of its timestamp; `-` deletes, `!` raises."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._context = context
        self._stores = {name: context.get_state_store(store_name(name)) for name in NAMES}

    def process(self, record: Record[str, str]) -> None:
        if record.value == "!":
            raise RuntimeError("boom")
        value = None if record.value == "-" else record.value
        time = record.timestamp
        start = time // SECOND * SECOND
        self._stores["plain"].put(record.key, value)
        self._stores["timed"].put(record.key, (value, time))
        self._stores["lists"].put(record.key, None if value is None else [value])
        self._stores["window"].put(record.key, value, start)
        self._stores["versioned"].put(record.key, None if value is None else [value], time)
        self._stores["duplicates"].put(record.key, value, start)
        self._stores["timed window"].put(record.key, (value, time), start)
        self._stores["session"].put(Windowed(record.key, Window(start, start + 5)), value)


class _Times(TypedDict):
    retention_ms: int
    window_size_ms: int


def everything(engine: StoreType, processor: type[Puts] = Puts) -> Topology:
    """Return a topology that reads `in`."""
    text, times = serdes.STRING, _Times(retention_ms=HOUR, window_size_ms=SECOND)
    topology = Topology()
    topology.add_source("source", "in", key=text, value=text)
    topology.add_processor("puts", processor, "source")
    specs = (
        stores.key_value("plain", text, text, type=engine),
        stores.key_value("timed", text, text, type=engine, timestamped=True),
        stores.window("window", text, text, type=engine, **times),
        stores.window("timed-window", text, text, type=engine, timestamped=True, **times),
        stores.window("duplicates", text, text, type=engine, retain_duplicates=True, **times),
        stores.session("session", text, text, type=engine, retention_ms=HOUR),
        stores.key_value("lists", text, serdes.json(), type=engine),
        stores.versioned_key_value("versioned", text, serdes.json(), type=engine, history_retention_ms=HOUR),
    )
    for spec in specs:
        topology.add_state_store(spec, "puts")
    return topology


async def put(harness: AppHarness, **values: str) -> None:
    """Write records, all at once, and wait until they are processed, not for a commit."""
    for time, (key, value) in enumerate(values.items()):
        await harness.produce("in", key, value, SECOND * (time + 1) + 5)
    await processed(harness)


async def processed(harness: AppHarness) -> None:
    """Wait until all that `in` holds is processed, in virtual time."""
    metrics = harness.app._metrics
    for _ in range(1000):
        await asyncio.sleep(0.01)
        queues = [queue for task in metrics.tasks.values() for queue in task.group.queues.values()]
        ends = await harness.log.end_offsets([queue.partition for queue in queues], UNCOMMITTED)
        if all(queue.position >= ends[queue.partition] for queue in queues):
            return
    raise AssertionError("records are not processed")
