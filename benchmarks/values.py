"""Measure aggregates of several types in one task.

It prints CPU time per record in µs, the minimum of some rounds. The last line of stdout is one JSON
object.

    python benchmarks/values.py [--records 50000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import msgspec

from ks_actors import serdes
from ks_actors.dsl import Consumed, Materialized, StreamsBuilder, TimeWindows
from ks_actors.records._batch import Batch
from ks_actors.records._topic_partition import TopicPartition
from ks_actors.testing import TopologyTestDriver

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.topology import Topology

RECORDS, KEYS, ROUNDS, SLICE, COMMIT = 50_000, 5_000, 5, 1_000, 10


class Stats(msgspec.Struct, frozen=True):
    """An immutable aggregate."""

    count: int = 0
    total: int = 0


class Tally(msgspec.Struct):
    """An aggregate that is changed in place."""

    count: int = 0
    total: int = 0


def _added(_: str, value: int, tally: Tally) -> Tally:
    tally.count += 1
    tally.total += value
    return tally


def _grown(_: str, value: int, stats: Any) -> Any:
    stats["count"] += 1
    stats["total"] += value
    return stats


def _next(_: str, value: int, stats: Stats) -> Stats:
    return Stats(stats.count + 1, stats.total + value)


def _kept(value: Any) -> Materialized[Any, Any]:
    return Materialized("s", serdes.STRING, value, store_type="in_memory")


CASES: dict[str, Callable[[Any], Any]] = {
    "count": lambda grouped: grouped.count(_kept(serdes.LONG)),
    "sum, LONG": lambda grouped: grouped.aggregate(int, lambda _, value, total: total + value, _kept(serdes.LONG)),
    "text, STRING": lambda grouped: grouped.aggregate(str, lambda _, value, __: str(value), _kept(serdes.STRING)),
    "sum in windows, LONG": lambda grouped: grouped.windowed_by(TimeWindows.of_size_with_no_grace(1_000)).aggregate(
        int, lambda _, value, total: total + value, _kept(serdes.LONG)
    ),
    "frozen struct, JSON": lambda grouped: grouped.aggregate(Stats, _next, _kept(serdes.json(Stats))),
    "struct, JSON": lambda grouped: grouped.aggregate(Tally, _added, _kept(serdes.json(Tally))),
    "dict, JSON": lambda grouped: grouped.aggregate(lambda: {"count": 0, "total": 0}, _grown, _kept(serdes.json())),
}


def _topology(case: str) -> Topology:
    builder = StreamsBuilder()
    CASES[case](builder.stream("in", Consumed(serdes.STRING, serdes.LONG)).group_by_key())
    return builder.build()


def _measure(case: str, records: int) -> float:
    """Return µs per record, with a commit after every COMMIT slices."""
    write = serdes.LONG.serializer("in")
    with TopologyTestDriver(_topology(case)) as driver:
        task, partition = driver._running(), TopicPartition("in", 0)  # noqa: SLF001 - it takes batches, which the driver does not
        batches = [
            Batch([b"k%d" % (n * 7919 % KEYS) for n in places], [write(n) for n in places], list(places), None, places)
            for places in (range(first, first + SLICE) for first in range(0, records, SLICE))
        ]
        began = time.process_time()
        for number, batch in enumerate(batches, 1):
            task.add(partition, batch, number * SLICE, number * SLICE)
            while task.process(1.0):
                task.take_output()
            if number % COMMIT == 0:
                driver._commit()  # noqa: SLF001 - not behind each record
                driver._written._records.clear()  # noqa: SLF001 - to keep no output
        return (time.process_time() - began) / (len(batches) * SLICE) * 1e6


def main() -> None:
    """Measure each case in turn, for some rounds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=RECORDS, help=f"of each case, in slices of {SLICE:,} (default {RECORDS:,})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how often to measure each (default {ROUNDS})")
    options = parser.parse_args()
    found: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for case in CASES:
            found.setdefault(case, []).append(_measure(case, options.records))
    for case, times in found.items():
        print(f"{case}: {min(times):.2f} µs")
    print(json.dumps({case: round(min(times), 2) for case, times in found.items()}))


if __name__ == "__main__":
    main()
