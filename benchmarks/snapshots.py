"""Measure snapshots: bootstrapping, taking, and starting from one against restoring a changelog.

The table goes to stdout; the last line of stdout is one JSON object. The log is the embedded one,
in a directory; --kafka starts a broker (Java 17, Linux), and stops it at the end. Each figure is
the median of the rounds. The changelog has --records records, evenly over --keys keys, like one
that is not compacted yet. CPU seconds are of this process, all threads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

# Put the project first on the path, before the script's directory.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

from ks_actors import App, Batch, Consumed, Materialized, StreamsBuilder, StreamsConfig, serdes, tune_gc
from ks_actors.log import Log, NewTopic, Outgoing, TopicPartition, open_log
from ks_actors.snapshots import Shape, SnapshotWriter, SourcePosition
from tests.kafka.broker import Broker

if TYPE_CHECKING:
    from typing import Self

    from ks_actors.topology import Topology

RECORDS = 1_000_000
KEYS = 100_000
PART = 10_000
LIVE = 1_000
_LOOK_S = 0.001


def main() -> None:
    """Run the measurements named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=RECORDS, help=f"records of the changelog (default {RECORDS:,})")
    parser.add_argument("--keys", type=int, default=KEYS, help=f"rows of the store (default {KEYS:,})")
    parser.add_argument("--rounds", type=int, default=3, help="how often each part is measured (default 3)")
    parser.add_argument("--kafka", action="store_true", help="on a real Kafka")
    options = parser.parse_args()
    if not 2 <= options.keys <= options.records:  # noqa: PLR2004 - the last key is only in the changelog, the others get new records
        parser.error(f"--keys {options.keys} is to be at least 2, and at most --records {options.records}")
    tune_gc()
    with tempfile.TemporaryDirectory(prefix="ks-actors-bench-") as directory:
        figures = asyncio.run(_measure(Path(directory), options))
    table = Table(
        "what", ">figure", title=f"snapshots, {options.records:,} records of {options.keys:,} keys, {'Kafka' if options.kafka else 'embedded log'}"
    )
    for name, figure in figures.items():
        table.add_row(name, f"{figure:,.3f}")
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    print(json.dumps({name: round(figure, 4) for name, figure in figures.items()}), flush=True)


class Stalls:
    """Measure the longest block of the event loop."""

    async def __aenter__(self) -> Self:
        self.worst: float = 0.0
        self._task = asyncio.ensure_future(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _watch(self) -> None:
        before = time.perf_counter()
        while True:
            await asyncio.sleep(_LOOK_S)
            now = time.perf_counter()
            self.worst = max(self.worst, now - before - _LOOK_S)
            before = now


def _topology() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(serdes.STRING, serdes.STRING))
    stream.group_by_key().count(Materialized("counts", serdes.STRING, serdes.LONG))
    return builder.build()


def _history(uri: str, rows: int) -> None:
    """Write a snapshot of `rows` rows, as a batch job would."""
    with SnapshotWriter(uri, "seeded", created_ms=time.time_ns() // 1_000_000) as snapshot:
        store = snapshot.store("0_0", Shape("counts", "timestamped_key_value"))
        for start in range(0, rows, PART):
            numbers = range(start, min(start + PART, rows))
            keys = [b"key-%010d" % number for number in numbers]
            store.write(Batch(keys, [number.to_bytes(8, "big") for number in numbers], [start] * len(keys)))
        snapshot.add("0_0", store.close(), positions=[SourcePosition("in", 0, 0)])
        snapshot.commit()


async def _measure(directory: Path, options: argparse.Namespace) -> dict[str, float]:
    figures: dict[str, list[float]] = {}
    async with AsyncExitStack() as stack:
        url = f"embedded://{directory / 'log'}"
        if options.kafka:
            broker = Broker(directory / "broker", quick=False)
            broker.start()
            stack.callback(broker.stop)
            url = f"kafka://{broker.bootstrap}"
        log = open_log(url)
        await log.start()
        stack.push_async_callback(log.close)
        await log.create_topics([NewTopic("in", 1)])
        bench = _Bench(log, directory, options.keys, figures)
        began = time.perf_counter()
        await asyncio.to_thread(_history, bench.history, options.keys)
        bench.note("history_written_s", time.perf_counter() - began)
        await bench.fill(options.records)
        for _ in range(options.rounds):
            await bench.round()
    return {name: median(values) for name, values in figures.items()}


class _Bench:
    """One log, on which an app is started again and again."""

    def __init__(self, log: Log, directory: Path, rows: int, figures: dict[str, list[float]]) -> None:
        self._log = log
        self._directory = directory
        self._rows = rows
        self._figures = figures
        self.history = f"file://{directory / 'history'}"
        self._place = f"file://{directory / 'snapshots'}"

    def note(self, name: str, value: float) -> None:
        """Record a figure."""
        self._figures.setdefault(name, []).append(value)

    def _app(self, **more: Any) -> App:
        config = {
            "application_id": "bench",
            "state_dir": self._directory / "state",
            "snapshot_interval_ms": 0,
            "processing_guarantee": "exactly_once_v2",
        }
        return App(_topology(), StreamsConfig.of({**config, **more}), log=self._log)

    async def fill(self, records: int) -> None:
        """Write the changelog: each key repeatedly, with its number as the last value."""
        app = self._app()
        await app.start()
        await app.close()
        producer = await self._log.producer(client_id="bench")
        rounds = records // self._rows
        for number in range(rounds):
            for start in range(0, self._rows, PART):
                numbers = range(start, min(start + PART, self._rows))
                batch = Batch(
                    [b"key-%010d" % each for each in numbers],
                    [(each - rounds + number + 1).to_bytes(8, "big", signed=True) for each in numbers],
                    [0] * len(numbers),
                )
                await producer.send([Outgoing(TopicPartition("bench-counts-changelog", 0), batch)])
        await producer.close()

    async def round(self) -> None:
        """Bootstrap from history, take a snapshot, and start with it, without it, and from disk."""
        shutil.rmtree(self._directory / "state" / "seeded", ignore_errors=True)
        async with Stalls() as stalls:
            await self._timed("seed_s", self._app(application_id="seeded").seed(self.history, if_seeded="overwrite"))
        self.note("seed_worst_stall_ms", stalls.worst * 1000)
        async with self._app(snapshot_uri=self._place) as app:
            await self._feed(app)
            async with Stalls() as stalls:
                manifest = await self._timed("snapshot_take_s", app.snapshot())
            self.note("snapshot_take_worst_stall_ms", stalls.worst * 1000)
            self.note("snapshot_mb", sum(file.bytes for file in manifest.tasks["0_0"].stores["counts"].files) / 1e6)
        for name, settings in (("snapshot_start", {"snapshot_uri": self._place}), ("restore_start", {})):
            shutil.rmtree(self._directory / "state")
            await self._start(name, settings)
        await self._start("warm_start", {})

    async def _start(self, name: str, settings: dict[str, Any]) -> None:
        app = self._app(**settings)
        async with Stalls() as stalls:
            await self._timed(f"{name}_s", app.start())
        self.note(f"{name}_worst_stall_ms", stalls.worst * 1000)
        found = await app.store("counts").get(f"key-{self._rows - 1:010d}")
        if found != self._rows - 1:
            raise RuntimeError(f"{name}: the last key has {found}, not {self._rows - 1}")
        await app.close()

    async def _timed(self, name: str, work: Any) -> Any:
        began, used = time.perf_counter(), time.process_time()
        result = await work
        self.note(name, time.perf_counter() - began)
        self.note(name.removesuffix("_s") + "_cpu_s", time.process_time() - used)
        return result

    async def _feed(self, app: App) -> None:
        producer = await self._log.producer(client_id="bench")
        # The last key gets no new record: its count tells that all of the changelog was restored.
        keys = [b"key-%010d" % number for number in range(min(LIVE, self._rows - 1))]
        await producer.send([Outgoing(TopicPartition("in", 0), Batch(keys, [b"v"] * len(keys), [0] * len(keys)))])
        await producer.close()
        await app.wait_until_caught_up()


if __name__ == "__main__":
    main()
