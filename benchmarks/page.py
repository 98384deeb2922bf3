"""Measure a look at an app for its page, and a scrape of its metrics, with 60 tasks.

A look with its JSON is made once a second for all readers together, while there are any; a scrape
when Prometheus asks. The times are CPU times in ms, median (minimum-maximum), of a started app
whose tasks have counted some records each. The last line of stdout is one JSON object.

    python benchmarks/page.py [--tasks 60] [--rounds 50]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ks_actors import App, Batch, HealthBounds, StreamsBuilder, StreamsConfig
from ks_actors.dsl import Consumed, Grouped, Materialized
from ks_actors.log import NewTopic, Outgoing, TopicPartition, open_log
from ks_actors.metrics.exporters import prometheus_text
from ks_actors.serdes import LONG, STRING
from ks_actors.web._answers import as_json
from ks_actors.web._graph import Layout
from ks_actors.web._sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS = 100


def main() -> None:
    """Measure with the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=60, help="how many (default 60)")
    parser.add_argument("--rounds", type=int, default=50, help="how often to measure each (default 50)")
    options = parser.parse_args()
    found = asyncio.run(measure(options.tasks, options.rounds))
    for name, times in found.items():
        print(f"{name}: {median(times):.1f} ms ({min(times):.1f}-{max(times):.1f})")
    print(json.dumps({f"{name}_ms": round(median(times), 2) for name, times in found.items()}))


async def measure(tasks: int, rounds: int) -> dict[str, list[float]]:
    """Return the CPU times in ms of looks and scrapes, which take turns."""
    builder = StreamsBuilder()
    counted = builder.stream("in", Consumed(STRING, STRING)).group_by_key(Grouped(STRING, STRING))
    counted.count(Materialized("counts", STRING, LONG))
    found: dict[str, list[float]] = {"look": [], "scrape": []}
    log = open_log("memory://")
    await log.start()
    try:
        await log.create_topics([NewTopic("in", tasks)])
        rows: list[bytes | None] = [b"%d" % number for number in range(RECORDS)]
        batches = [Batch(list(rows), list(rows), list(range(RECORDS))) for _ in range(tasks)]
        producer = await log.producer(client_id="benchmark")
        await producer.send([Outgoing(TopicPartition("in", number), batch) for number, batch in enumerate(batches)])
        await producer.close()
        with tempfile.TemporaryDirectory() as state:
            config = StreamsConfig(application_id="page", state_dir=Path(state), default_dsl_store="in_memory")
            async with App(builder.build(), config, log=log) as app:
                await app.wait_until_caught_up()
                sampler = Sampler(app, Layout(app), HealthBounds())
                for _ in range(rounds):
                    found["look"].append(_took(lambda: as_json(sampler.look())))
                    found["scrape"].append(_took(lambda: prometheus_text(app)))
    finally:
        await log.close()
    return found


def _took(function: Callable[[], object]) -> float:
    before = time.thread_time()
    function()
    return (time.thread_time() - before) * 1000


if __name__ == "__main__":
    main()
