"""Measure one of two queries while the other fails, waits, is paused, or writes to a topic without a leader.

Both queries get the same records. By default they share one instance, on the embedded log in
memory. With `--apart` each runs in a process of its own, on a real Kafka.

Without `--rate` all records are there at the start. The figures are records of the good query per
second, by the clock and by the CPU time of its process. On a busy machine look at the CPU time.

With `--rate` records are sent at that rate to both queries, whether they keep up or not, on a real
Kafka. The figures are the latency of the good query in ms, from the sending of a record to the
sight of its result, p50 and p99.

Each is a median (minimum-maximum) of rounds, with its ratio to the same round beside a healthy
query. With `--weights` two healthy queries with the weights 3 and 1 share an instance. The figure
is the ratio of their processed records while both have more input than a core can process.
The last line of stdout is one JSON object.

    python benchmarks/queries.py [--apart] [--records 200000] [--rounds 3]
    python benchmarks/queries.py [--apart] --rate 2000 [--seconds 15] [--rounds 3]
    python benchmarks/queries.py --weights [--records 200000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import _queries_kafka as on_kafka
from benchmarks._queries_app import (
    BAD,
    FAULTS,
    GOOD,
    HEALTHY,
    LEADERLESS,
    LOOK_S,
    TIMEOUT_S,
    Rate,
    config,
    make_topics,
    measured,
    processed,
    topology,
)
from ks_actors import App
from ks_actors.log.embedded import EmbeddedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks._queries_kafka import Latency

USUAL_RATE = 2_000
SECONDS, WARM_SECONDS = 15.0, 3.0
WEIGHT = 3


def main() -> None:
    """Measure with the options of the command line."""
    options = _parse()
    # Each record that raises would be a traceback.
    logging.disable(logging.CRITICAL)
    if options.weights:
        _report_weights([asyncio.run(_weighed(options.records)) for _ in range(options.rounds)])
        return
    placed = on_kafka.APART if options.apart else on_kafka.TOGETHER
    modes = (HEALTHY, *options.modes)
    if not options.apart and not options.rate:
        _report(_in_turns(modes, options.rounds, lambda mode: asyncio.run(_together(mode, options.records))), ",.0f")
        return
    with on_kafka.have_kafka() if options.bootstrap is None else nullcontext(options.bootstrap) as bootstrap:
        if not options.rate:
            _report(_in_turns(modes, options.rounds, lambda mode: on_kafka.rate(mode, bootstrap, placed, options.records)), ",.0f")
            return

        def latency(mode: str) -> Latency:
            return on_kafka.latency(mode, bootstrap, placed, options.rate, options.seconds, options.warm_seconds)

        # The JVM of a new broker compiles its code first.
        latency(HEALTHY)
        _report(_in_turns(modes, options.rounds, latency), ",.1f")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--apart", action="store_true", help="in a process for each query, on a Kafka")
    parser.add_argument("--modes", nargs="+", choices=FAULTS, help="these of the bad query only")
    parser.add_argument("--rounds", type=int, default=3, help="how often to measure each (default 3)")
    parser.add_argument("--records", type=int, default=200_000, help="of each query and run without --rate (default 200,000)")
    parser.add_argument(
        "--rate", type=int, nargs="?", const=USUAL_RATE, help=f"measure latency at this rate (records/s of each query; alone {USUAL_RATE:,})"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"how long to measure each with --rate (default {SECONDS:g})")
    parser.add_argument("--warm-seconds", type=float, default=WARM_SECONDS, help=f"how long to send before that (default {WARM_SECONDS:g})")
    parser.add_argument("--weights", action="store_true", help=f"two healthy queries with the weights {WEIGHT} and 1 in one instance")
    parser.add_argument("--bootstrap", help=f"a Kafka that is there, instead of one of its own; without the mode {LEADERLESS}")
    options = parser.parse_args()
    if options.weights and (options.apart or options.rate or options.modes):
        parser.error("--weights is about healthy queries in one instance: leave out --apart, --rate and --modes")
    # In one instance both queries commit together, and stop while a topic has no leader.
    leaderless = options.apart and options.bootstrap is None
    if not leaderless and LEADERLESS in (options.modes or ()):
        parser.error(f"the mode {LEADERLESS} needs --apart, and a Kafka of its own")
    options.modes = options.modes or [mode for mode in FAULTS if leaderless or mode != LEADERLESS]
    return options


def _in_turns(modes: Sequence[str], rounds: int, measure: Callable[[str], Any]) -> dict[str, list[Any]]:
    """Measure each mode in each round; every second round has the reverse order."""
    found: dict[str, list[Any]] = {mode: [] for mode in modes}
    for number in range(rounds):
        for mode in modes[:: 1 if number % 2 == 0 else -1]:
            found[mode].append(measure(mode))
    return found


def _report(results: dict[str, list[Any]], form: str) -> None:
    figures: dict[str, float] = {}
    for mode, measured_here in results.items():
        for name in measured_here[0]._fields:
            found, healthy = ([getattr(one, name) for one in results[each]] for each in (mode, HEALTHY))
            ratios = [one / other for one, other in zip(found, healthy, strict=True)]
            print(
                f"{mode}, {name}: {median(found):{form}} ({min(found):{form}}-{max(found):{form}}), "
                f"{median(ratios):.2f} of healthy ({min(ratios):.2f}-{max(ratios):.2f})"
            )
            figures[f"{mode}_{name}"], figures[f"{mode}_{name}_ratio"] = round(median(found), 1), round(median(ratios), 3)
    print(json.dumps(figures))


def _report_weights(ratios: list[float]) -> None:
    print(f"weights {WEIGHT} and 1: {median(ratios):.2f} records for one ({min(ratios):.2f}-{max(ratios):.2f})")
    print(json.dumps({"weights_ratio": round(median(ratios), 3)}))


async def _together(mode: str, count: int) -> Rate:
    """Return the rate of the good query in one instance."""
    with tempfile.TemporaryDirectory() as directory:
        async with EmbeddedLog() as log:
            await make_topics(log, count)
            async with App(topology(mode), config(directory), log=log) as app:
                await app.pause()
                return await measured(app, mode, count, (GOOD, BAD))


async def _weighed(count: int) -> float:
    """Return the records of the good query for each one of the bad one, while both have input."""
    with tempfile.TemporaryDirectory() as directory:
        async with EmbeddedLog() as log:
            await make_topics(log, count)
            async with App(topology(HEALTHY, WEIGHT), config(directory), log=log) as app:
                await app.pause()
                await app.resume()
                looks: list[tuple[float, float]] = []
                async with asyncio.timeout(TIMEOUT_S):
                    while True:
                        await asyncio.sleep(LOOK_S)
                        good, bad = processed(app, GOOD), processed(app, BAD)
                        if good >= count:
                            break
                        looks.append((good, bad))
                begun = [look for look in looks if min(look)]
                if not begun or begun[-1][1] == begun[0][1]:
                    raise SystemExit(f"{count:,} records are too few to see both queries at work: give more --records")
                (first_good, first_bad), (last_good, last_bad) = begun[0], begun[-1]
                return (last_good - first_good) / (last_bad - first_bad)


if __name__ == "__main__":
    main()
