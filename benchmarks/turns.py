"""Compare two versions of this library: run applications on a real Kafka, in turn.

The other version is a checkout with its kernel built (by `pip install --editable` there), run by
this interpreter. The options are those of benchmarks/kafka.py. The table goes to stdout, progress
to stderr; the last line of stdout is one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

from benchmarks import _kafka_process as process
from benchmarks._kafka_report import OURS, THEIRS, steady
from benchmarks.kafka import WIDTH, have_broker, measure, parser

if TYPE_CHECKING:
    from benchmarks._kafka_process import Run
    from benchmarks._kafka_report import Results

NAMES = {OURS: "this", THEIRS: "other"}


def main() -> None:
    """Compare with the options of the command line."""
    arguments = parser(__doc__)
    arguments.add_argument("other", type=Path, help="the checkout of the other version")
    options = arguments.parse_args()
    contenders = {OURS: process.ours(), THEIRS: process.ours(options.other.resolve())}
    with have_broker(options) as (bootstrap, pid):
        results = asyncio.run(measure(options, contenders, bootstrap, pid))
    Console(width=None if sys.stdout.isatty() else WIDTH).print(_table(results))
    print(json.dumps(_summary(results)), flush=True)


def _cpu(run: Run) -> float:
    """Return the CPU time per record in the second half of the work, µs."""
    return float(run.said["cpu_steady_us_per_record"] or 0)


def _table(results: Results) -> Table:
    found = Table("", "", "CPU µs per record, second half", "records/s, steady")
    for cell in results.cells:
        for contender, name in NAMES.items():
            cpu, rate = results.spread(cell, contender, _cpu), results.spread(cell, contender, steady)
            found.add_row(
                cell.key, name, f"{cpu.median:.2f} ({cpu.low:.2f}-{cpu.high:.2f})", f"{rate.median:,.0f} ({rate.low:,.0f}-{rate.high:,.0f})"
            )
    return found


def _summary(results: Results) -> dict[str, float]:
    """Return the medians of the CPU time per record."""
    return {f"{cell.key}_{name}_us": results.spread(cell, contender, _cpu).median for cell in results.cells for contender, name in NAMES.items()}


if __name__ == "__main__":
    main()
