"""Measure the cost of metrics at level INFO: an app that reads history at full speed, with its sensors and without them.

Each round runs each contender in turn, in the other order every second time, on the embedded log in memory: `bare`, whose sensors do nothing;
`measured`, as it is; `read`, whose metrics are also read each second, as by a scraper. The figures are µs of CPU per record for the whole
process, and the ratio to `bare` of the same round: median (minimum-maximum). The last line of stdout is one JSON object.

    python benchmarks/metrics.py [--records 1000000] [--rounds 7]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from unittest.mock import patch

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._runtime_apps import count_topology, map_topology
from benchmarks._runtime_load import fill, make_topics, records
from ks_actors import App, StreamsConfig
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.metrics import Histogram, Timing
from ks_actors.metrics._registry import Registry
from ks_actors.task import _record_queue
from ks_actors.task._record_queue import RecordQueue
from ks_actors.task.figures import SinksFigures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors import Topology

KEYS = 10_000
READ_S = 1.0
CONTENDERS = ("bare", "measured", "read")
TOPOLOGIES = {"map": map_topology, "count": count_topology}


def main() -> None:
    """Measure with the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000, help="of each run (default 1,000,000)")
    parser.add_argument("--rounds", type=int, default=7, help="how often to measure each (default 7)")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    for name, topology in TOPOLOGIES.items():
        asyncio.run(_cost(topology(), "measured", options.records // 4))  # warm up
        found: dict[str, list[float]] = {contender: [] for contender in CONTENDERS}
        for number in range(options.rounds):
            for contender in CONTENDERS[:: 1 if number % 2 == 0 else -1]:
                found[contender].append(asyncio.run(_cost(topology(), contender, options.records)))
        for contender, costs in found.items():
            ratios = [cost / bare for cost, bare in zip(costs, found["bare"], strict=True)]
            print(
                f"{name}, {contender}: {median(costs):.2f} µs a record ({min(costs):.2f}-{max(costs):.2f}), "
                f"{median(ratios):.3f} of bare ({min(ratios):.3f}-{max(ratios):.3f})"
            )
            figures[f"{name}_{contender}_us"] = round(median(costs), 3)
            figures[f"{name}_{contender}_ratio"] = round(median(ratios), 4)
    print(json.dumps(figures))


async def _cost(topology: Topology, contender: str, count: int) -> float:
    """Return the CPU time in µs per record of one run."""
    with tempfile.TemporaryDirectory() as directory, _sensors(work=contender != "bare"):
        async with EmbeddedLog() as log:
            await make_topics(log)
            await fill(log, records(count, KEYS))
            config = StreamsConfig(application_id="metrics", state_dir=Path(directory), commit_interval_ms=100)
            app = App(topology, config, log=log)
            # The input, a million records in memory, would be looked through by each full collection: that took more than all metrics.
            gc.collect()
            gc.freeze()
            began = time.process_time()
            async with app:
                reading = asyncio.create_task(_read(app)) if contender == "read" else None
                await app.wait_until_caught_up()
                took = time.process_time() - began
                if reading is not None:
                    reading.cancel()
                    with suppress(asyncio.CancelledError):
                        await reading
    gc.unfreeze()
    return took * 1e6 / count


async def _read(app: App) -> None:
    while True:
        app.metrics()
        await asyncio.sleep(READ_S)


@contextmanager
def _sensors(*, work: bool) -> Iterator[None]:
    """Run the block with sensors that work, or with ones that do nothing."""
    with ExitStack() as stack:
        if not work:
            for of, method in (
                (Timing, "add"),
                (Histogram, "add"),
                (SinksFigures, "note"),
                (RecordQueue, "measure"),
                (Registry, "note"),
                (_record_queue, "estimated_bytes"),
            ):
                stack.enter_context(patch.object(of, method, lambda *_, **__: 0))
        yield


if __name__ == "__main__":
    main()
