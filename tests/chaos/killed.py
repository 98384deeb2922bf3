"""An app that is killed: it counts records that it writes itself, commits all the time, and writes to disk all the time.

`python -m tests.chaos.killed <directory> <options as JSON>` runs until it is killed, or until a write that was to fail has failed, or, told to
`finish`, until all that was written is counted.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ks_actors import App, Processor, ProcessorContext, Record, StateFull, StoreSpec, StreamsConfig, Topology, Window, Windowed, serdes, stores
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.state import SharedResources
from ks_actors.state.disk import _rocksdb
from tests.ks_actors.log.helpers import batch
from tests.waiting import PATIENCE_S

PARTITIONS = 2
APPLICATION = "killed"
SOURCE, SINK = "in", "out"
SPAN = 50
"""Offsets in a window."""
FOREVER_MS = 1 << 40


class Life(msgspec.Struct, frozen=True):
    """The life of one process: everything about it is drawn by lot."""

    seed: int
    keys: int = 100
    batch: int = 50
    commit_interval_ms: int = 5
    tail_records: int = 100
    memtable_bytes: int = 16 << 10
    failing_write: int = 0
    finish: bool = False


class Counts(Processor[str, int, str, int]):
    """Count in a store of each kind, by offsets where there are times: all of them have to go together."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        super().init(context)
        self._counts = context.get_state_store("counts")
        self._sums = context.get_state_store("sums")
        self._history = context.get_state_store("history")
        self._spans = context.get_state_store("spans")
        self._pieces = context.get_state_store("pieces")
        self._session = context.get_state_store("session")

    def process(self, record: Record[str, int]) -> None:
        key = record.key
        count = (self._counts.get(key) or 0) + 1
        before = self._sums.get(key) or [0, 0]
        self._counts.put(key, count)
        self._sums.put(key, [count, before[1] + record.value])
        where = self.context.record_metadata()
        assert where is not None
        at, start = where.offset, where.offset // SPAN * SPAN
        self._history.put(key, count, at)
        self._spans.put(key, count, start)
        self._pieces.put(key, str(count), start)
        for session, _ in list(self._session.fetch(key)):
            self._session.remove(session)
        self._session.put(Windowed(key, Window(at // 2, at)), count)
        self.context.forward(record.with_value(count))


def specs() -> tuple[StoreSpec, ...]:
    return (
        stores.key_value("counts", serdes.STRING, serdes.LONG, type="rocksdb"),
        stores.key_value("sums", serdes.STRING, serdes.json(list[int]), type="rocksdb"),
        stores.versioned_key_value("history", serdes.STRING, serdes.LONG, type="rocksdb", history_retention_ms=500),
        stores.window("spans", serdes.STRING, serdes.LONG, type="rocksdb", retention_ms=FOREVER_MS, window_size_ms=SPAN),
        stores.window("pieces", serdes.STRING, serdes.STRING, type="rocksdb", retention_ms=FOREVER_MS, window_size_ms=SPAN, retain_duplicates=True),
        stores.session("session", serdes.STRING, serdes.LONG, type="rocksdb", retention_ms=FOREVER_MS),
    )


def topology() -> Topology:
    made = Topology()
    made.add_source("source", SOURCE, key=serdes.STRING, value=serdes.LONG)
    made.add_processor("counts", Counts, "source")
    for spec in specs():
        made.add_state_store(spec, "counts")
    made.add_sink("sink", SINK, "counts", key=serdes.STRING, value=serdes.LONG)
    return made


def app_of(directory: Path, log: EmbeddedLog, life: Life) -> App:
    config = StreamsConfig(
        application_id=APPLICATION,
        state_dir=directory / "state",
        processing_guarantee="exactly_once_v2",
        commit_interval_ms=life.commit_interval_ms,
        num_workers=2,
    )
    return App(topology(), config, log=log)


def be_small(life: Life) -> None:
    """Have the state written to disk all the time."""
    defaults: dict[str, Any] | None = SharedResources.__init__.__kwdefaults__
    assert defaults is not None
    defaults.update(memtable_bytes=life.memtable_bytes, write_buffer_bytes=64 << 10, tail_records=life.tail_records, resident_bytes=60_000)


def fail_a_write(number: int) -> None:
    """Have the write of that number fail, and those after it."""
    write, written = _rocksdb.RocksEngine.write, 0

    def failing(self: _rocksdb.RocksEngine, rows: Iterable[Any], *others: Any, **options: Any) -> None:
        nonlocal written
        written += 1
        if written >= number:
            raise StateFull("injected: the disk is full")
        write(self, rows, *others, **options)

    _rocksdb.RocksEngine.write = failing  # type: ignore[method-assign]


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def feed(log: EmbeddedLog, life: Life) -> None:
    """Write records with random keys and values until there is nobody any more."""
    dice = random.Random(life.seed)
    producer = await log.producer(client_id="feeder")
    while True:
        for number in range(PARTITIONS):
            keys = [b"%d-%d" % (number, dice.randrange(life.keys)) for _ in range(life.batch)]
            values = [dice.randrange(1000).to_bytes(8, "big") for _ in keys]
            await producer.send([Outgoing(TopicPartition(SOURCE, number), batch(*values, keys=keys))])
        await asyncio.sleep(0.005)


async def counted(log: EmbeddedLog) -> None:
    """Wait until as much has come out as is in."""
    fetchers = {topic: log.fetcher(client_id=topic, isolation=IsolationLevel.READ_COMMITTED) for topic in (SOURCE, SINK)}
    counts = dict.fromkeys(fetchers, 0)
    for topic, fetcher in fetchers.items():
        fetcher.assign({TopicPartition(topic, number): 0 for number in range(PARTITIONS)})
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for topic, fetcher in fetchers.items():
                found = -1
                while found:  # offsets are also of markers, and of what was aborted: it is to be counted
                    found = sum(len(fetched.batch) for fetched in await fetcher.fetch(max_wait_ms=50))
                    counts[topic] += found
            if counts[SOURCE] == counts[SINK]:
                return


def tell_tasks() -> None:
    """Report the reason for which each task waits."""
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)
    sys.stderr.flush()


async def main(directory: Path, life: Life) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, tell_tasks)
    be_small(life)
    async with EmbeddedLog(directory / "log") as log:
        if SOURCE not in await log.describe_topics():
            await log.create_topics([NewTopic(SOURCE, PARTITIONS), NewTopic(SINK, PARTITIONS)])
        app = app_of(directory, log, life)
        running = asyncio.create_task(app.run())
        if life.failing_write:
            fail_a_write(life.failing_write)
        work = asyncio.create_task(counted(log) if life.finish else feed(log, life))
        say("running")
        await asyncio.wait([running, work], return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
        work.cancel()
        await app.close()
        (outcome,) = await asyncio.gather(running, return_exceptions=True)
        say(f"ended by {outcome!r}")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=Life)))
