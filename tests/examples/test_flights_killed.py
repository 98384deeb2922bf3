"""The flights job is killed at any point, again and again, and still gives the right results."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.flights.data import FLIGHTS
from examples.flights.job import Options, opened
from examples.flights.model import CarrierReport
from examples.flights.results import committed
from examples.flights.topology import BY_CARRIER
from ks_actors.serdes import json
from tests.examples import flights_job
from tests.examples.flights_expected import expected
from tests.examples_of import examples
from tests.killed import killed

KILLS = 4
LOADING = 0.2
"""Which part of a run's work is the loading."""
LEFT = 20_000
"""So many flights are left at the last kill: with fewer a job might end first."""


def taken() -> int:
    """Return the number of flights of a job: enough for its kills, and at night most of a year."""
    return min(examples(60_000), FLIGHTS)


def moments() -> Iterator[tuple[str, int, float]]:
    """Yield random moments in the order of the work, more of them at night: its phase, the number of flights so far, and further seconds to wait."""
    seed = int(os.environ.get("FLIGHTS_SEED", random.randrange(1 << 32)))
    say(f"FLIGHTS_SEED={seed}")
    source = random.Random(seed)
    for place in sorted(source.random() for _ in range(examples(KILLS))):
        what, share = ("loading", place / LOADING) if place < LOADING else ("processing", (place - LOADING) / (1 - LOADING))
        yield what, int(share * max(taken() - LEFT, taken() // 2)), source.uniform(0, 0.15)


async def kill_at(directory: Path, moment: tuple[str, int, float], *options: str) -> bool:
    """Run the job until it has come so far as the moment tells, then kill it; return whether it had work left."""
    what, flights, seconds = moment

    def there(line: str) -> bool:
        told, _, count = line.partition(": ")
        return (told, what) == ("processing", "loading") or (told == what and number(count) >= flights)

    command = flights_job.command(directory, *options, "--limit", str(taken()), "--progress-seconds", "0.01")[1:]
    lines = await killed(*command, when=there, seconds=seconds, may_end=True, env=flights_job.ENVIRONMENT)
    line = next(filter(there, lines), "")
    say(f"killed {seconds:.3f} s behind {line.strip()!r}, wanted {what} {flights:,}")
    told, _, count = line.partition(": ")
    return bool(line) and (told, number(count)) != ("processing", taken())


async def kill_at_all(directory: Path, *options: str) -> None:
    """Kill the job at random moments, until one finds it done: on a busy machine the last kills may come too late."""
    disturbed = 0
    for moment in moments():
        if not await kill_at(directory, moment, *options):
            break
        disturbed += 1
    assert disturbed, "there was nothing left to disturb"


def number(text: str) -> int:
    """Return the first number of a line of progress."""
    return int(text.split(maxsplit=1)[0].replace(",", ""))


def say(text: str) -> None:
    """Tell the person that looks into a failure."""
    sys.stdout.write(f"{text}\n")


@pytest.mark.extended
@pytest.mark.heavy("five runs of the job")
@pytest.mark.timeout(400)
async def test_exactly_once_nothing_is_doubled_and_nothing_lost(tmp_path: Path) -> None:
    """Killed at random moments of loading and processing, the job ends with the tables of polars, and each count went up by one each time."""
    await kill_at_all(tmp_path)
    say(flights_job.run(tmp_path, "--limit", str(taken())).splitlines()[-1])
    assert flights_job.plain(await flights_job.results(tmp_path)) == expected(taken())
    counts = await counts_by_carrier(tmp_path)
    assert all(counted == sorted(set(counted)) for counted in counts.values())


@pytest.mark.extended
@pytest.mark.heavy("five runs of the job")
@pytest.mark.timeout(400)
async def test_at_least_once_nothing_is_lost(tmp_path: Path) -> None:
    """Killed at random moments, the job counts each flight once or more."""
    await kill_at_all(tmp_path, "--guarantee", "at_least_once")
    flights_job.run(tmp_path, "--guarantee", "at_least_once", "--limit", str(taken()))
    found, wanted = flights_job.plain(await flights_job.results(tmp_path)), expected(taken())
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
