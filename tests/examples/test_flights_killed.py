"""The flights job is killed where it stands, again and again, and finds what it would have found."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from examples.flights.job import Options, opened
from examples.flights.model import CarrierReport
from examples.flights.results import committed
from examples.flights.topology import BY_CARRIER
from ks_actors.serdes import json
from tests.examples import flights_job
from tests.examples.flights_expected import expected

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 10


def moments() -> random.Random:
    """Return a source of moments; FLIGHTS_SEED repeats those of an earlier run."""
    seed = int(os.environ.get("FLIGHTS_SEED", random.randrange(1 << 32)))
    say(f"FLIGHTS_SEED={seed}")
    return random.Random(seed)


def say(text: str) -> None:
    """Tell who looks into a failure."""
    sys.stdout.write(f"{text}\n")


def kill_after(seconds: float, command: list[str], output: Path) -> str:
    """Run the job for so long, then kill it; return the last line that it printed by then."""
    with output.open("wb") as file, subprocess.Popen(command, cwd=flights_job.ROOT, stdout=file, stderr=subprocess.STDOUT) as job:  # noqa: S603 - our own
        try:
            job.wait(seconds)
        except subprocess.TimeoutExpired:
            job.kill()
    lines = output.read_text(encoding="utf-8").splitlines()
    assert job.returncode == -9, f"ended after less than {seconds:.2f} s by itself: {lines[-5:]}"
    return lines[-1] if lines else ""


@pytest.mark.timeout(400)
async def test_exactly_once_nothing_is_doubled_and_nothing_lost(tmp_path: Path) -> None:
    """Killed at ten random moments, from loading on, the job ends with the tables of polars, and each count went up by one each time."""
    random_moments = moments()
    for _ in range(KILLS):
        say(kill_after(random_moments.uniform(0.1, 1.2), flights_job.command(tmp_path, "--progress-seconds", "0.1"), tmp_path / "output"))
    say(flights_job.run(tmp_path).splitlines()[-1])
    assert flights_job.plain(await flights_job.results(tmp_path)) == expected()
    counts = await counts_by_carrier(tmp_path)
    assert all(counted == sorted(set(counted)) for counted in counts.values())


@pytest.mark.timeout(400)
async def test_at_least_once_nothing_is_lost(tmp_path: Path) -> None:
    """Killed at random moments, the job counts each flight once or more."""
    random_moments = moments()
    for _ in range(KILLS):
        command = flights_job.command(tmp_path, "--guarantee", "at_least_once", "--progress-seconds", "0.1")
        say(kill_after(random_moments.uniform(0.1, 1.2), command, tmp_path / "output"))
    flights_job.run(tmp_path, "--guarantee", "at_least_once")
    found, wanted = flights_job.plain(await flights_job.results(tmp_path)), expected()
    assert found.by_hour.keys() == wanted.by_hour.keys()
    assert found.by_carrier.keys() == wanted.by_carrier.keys()
    assert found.by_model.keys() == wanted.by_model.keys()
    assert all(delays[0] >= wanted.by_hour[key][0] for key, delays in found.by_hour.items())
    assert all(delays[1] >= wanted.by_carrier[key][1] for key, delays in found.by_carrier.items())
    assert all(delays[0] >= wanted.by_model[key][0] for key, delays in found.by_model.items())
    assert set(found.dead_letters) == set(wanted.dead_letters)


async def counts_by_carrier(directory: Path) -> dict[bytes, list[int]]:
    """Return the counts of flights in the order in which they were written, per carrier."""
    decode = json(CarrierReport).deserializer(BY_CARRIER)
    counts: dict[bytes, list[int]] = {}
    async with opened(Options(directory, "exactly_once_v2", 0)) as log:
        async for found in committed(log, BY_CARRIER):
            for key, value in zip(found.batch.keys, found.batch.values, strict=True):
                counts.setdefault(key, []).append(decode(value).delays.flights)
    return counts
