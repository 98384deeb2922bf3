"""Measure the cost of traces: an app that copies records, untraced, with all traces unsampled, and with all sampled.

Each round runs the three in turn, in the other order every second time, on the embedded log in virtual time. The figures are µs of
CPU per record for the whole app: median (minimum-maximum). Spans go to a processor that drops them in batches, so what an exporter
costs comes on top. The last line of stdout is one JSON object.

    python benchmarks/tracing.py [--records 20000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

from ks_actors import StreamsBuilder
from ks_actors.dsl import Consumed, Produced
from ks_actors.serdes import STRING
from ks_actors.testing import AppHarness, TestRecord, run_app
from ks_actors.tracing import OtelTracing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from ks_actors.topology import Topology


class Dropped(SpanExporter):
    """An exporter that drops all spans."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def main() -> None:
    """Measure with the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=20_000, help="of each run (default 20,000)")
    parser.add_argument("--rounds", type=int, default=5, help="how often to measure each (default 5)")
    options = parser.parse_args()
    exported = TracerProvider()
    exported.add_span_processor(BatchSpanProcessor(Dropped()))
    contenders = {
        "untraced": None,
        "unsampled": OtelTracing(TracerProvider(sampler=ParentBased(ALWAYS_OFF))),
        "sampled": OtelTracing(exported),
    }
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(options.rounds):
        for name in list(contenders)[:: 1 if number % 2 == 0 else -1]:
            found[name].append(cost(contenders[name], options.records))
    exported.shutdown()
    for name, costs in found.items():
        print(f"{name}: {median(costs):.1f} µs a record ({min(costs):.1f}-{max(costs):.1f})")
    print(json.dumps({f"{name}_us": round(median(costs), 2) for name, costs in found.items()}))


def cost(tracing: OtelTracing | None, records: int) -> float:
    """Return the CPU time in µs per record of one run."""

    async def run(harness: AppHarness) -> float:
        await harness.produce_all("in", [TestRecord(str(number), "value", number) for number in range(records)])
        began = time.process_time()
        await harness.caught_up()
        return (time.process_time() - began) * 1e6 / records

    return run_app(run, copied(), topics={"in": 1, "out": 1}, tracing=tracing)


def copied() -> Topology:
    """Return a topology that copies records."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).map_values(lambda value: value).to("out", Produced(STRING, STRING))
    return builder.build()


if __name__ == "__main__":
    main()
