"""Run the flights job as users do, in a process of its own, and check its files and topics."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from examples.flights.job import Options, opened
from examples.flights.model import CarrierReport
from examples.flights.results import Results, read
from tests.examples.flights_expected import Expected

# A job of this size is not measured for coverage: it takes twice as long then.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
ROOT = Path(__file__).parents[2]


def command(directory: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "examples.flights", "--directory", str(directory), *options]


def run(directory: Path, *options: str) -> str:
    """Run the job to its end; return its output."""
    done = subprocess.run(command(directory, *options), cwd=ROOT, capture_output=True, text=True, check=False, timeout=200, env=ENVIRONMENT)  # noqa: S603 - our own
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


async def results(directory: Path) -> Results:
    """Read the committed records."""
    async with opened(Options(directory, "exactly_once_v2", 0)) as log:
        return await read(log)


def plain(found: Results) -> Expected:
    """Return results in the form in which they are expected."""
    return Expected(
        {(key.key, key.window.start): fields(delays) for key, delays in found.by_hour.items()},
        {carrier: flat(report) for carrier, report in found.by_carrier.items()},
        {model: fields(delays) for model, delays in found.by_model.items()},
        sorted(letter.row or b"" for letter in found.dead_letters),
    )


def fields(struct: Any) -> tuple[Any, ...]:
    return tuple(getattr(struct, name) for name in struct.__struct_fields__)


def flat(report: CarrierReport) -> tuple[Any, ...]:
    return (report.airline, *fields(report.delays))
