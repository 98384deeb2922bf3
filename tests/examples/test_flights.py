"""The flights job gives the same counts as polars from the same files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

import pytest

from examples.flights import load, topology
from examples.flights.data import FLIGHTS
from examples.flights.job import Options, opened, processed
from examples.flights.model import CarrierReport, HourlyDelays, ModelDelays
from examples.flights.results import committed
from ks_actors.log import Log
from ks_actors.serdes import BYTES, STRING, json
from ks_actors.testing import TestRecord, TopologyTestDriver
from tests.examples import flights_job
from tests.examples.flights_expected import expected
from tests.kafka.broker import require_kafka

K = TypeVar("K")
V = TypeVar("V")

HEADERS = ["exception", "message", "stacktrace", "topic", "partition", "offset"]


@pytest.mark.extended
@pytest.mark.heavy("all flights of a year")
@pytest.mark.timeout(240)
async def test_exactly_once_the_tables_are_those_of_polars(tmp_path: Path) -> None:
    """All flights, in a process of its own: it ends with exit code 0, no more than 300 MB of memory, and the same tables as polars."""
    printed = flights_job.run(tmp_path)
    found = await flights_job.results(tmp_path)
    assert flights_job.plain(found) == expected()
    assert [len(found.by_hour), len(found.by_carrier), len(found.by_model), len(found.dead_letters)] == [19_432, 16, 128, 9_430]
    assert f"loading: {FLIGHTS:,} of {FLIGHTS:,}\n" in printed
    assert f"processing: {FLIGHTS:,} of {FLIGHTS:,}\n" in printed
    assert "9,430 rows were no flights" in printed
    last = re.fullmatch(r"336,776 flights in [\d.]+ s: [\d,]+ flights/s, (\d+) MB of memory at most", printed.splitlines()[-1])
    assert last is not None
    assert int(last[1]) <= 300


@pytest.mark.extended
@pytest.mark.heavy("two runs of the job")
@pytest.mark.parametrize("options", [("--guarantee", "at_least_once"), ("--commit-interval-ms", "10"), ("--in-memory",)], ids=" ".join)
async def test_undisturbed_the_tables_are_the_same_however_it_runs(tmp_path: Path, options: tuple[str, ...]) -> None:
    """At least once, with commits ten times as often, or in memory, the printed tables are those of exactly once."""
    assert tables(flights_job.run(tmp_path / "one", *options, "--limit", "8000")) == tables(flights_job.run(tmp_path / "two", "--limit", "8000"))
    assert flights_job.plain(await flights_job.results(tmp_path / "two")) == expected(8_000)


@pytest.mark.nightly
@pytest.mark.heavy("a broker, and two members of the job")
def test_in_processes_the_tables_are_the_same(tmp_path: Path) -> None:
    """`--processes 2` runs the job as two members on a Kafka of its own, and prints the tables of one process; both end."""
    require_kafka()
    relative = os.path.relpath(tmp_path / "two", flights_job.ROOT)
    printed = flights_job.run(Path(relative), "--processes", "2", "--limit", "5000")
    assert tables(printed) == tables(flights_job.run(tmp_path / "one", "--limit", "5000"))
    assert printed.splitlines()[-1].endswith(" flights/s, in 2 processes")


def tables(printed: str) -> str:
    """Return the lines printed between those of progress and the one about speed."""
    return printed[printed.index("Carriers") : printed.rindex("\n", 0, -1)]


@pytest.mark.heavy("a run of the job")
async def test_tables_are_those_of_polars_and_dead_letters_name_their_source(tmp_path: Path) -> None:
    """A row that does not parse is kept as it came, with Kafka Streams' headers: the error, and its place."""
    flights_job.run(tmp_path, "--limit", "5000")
    found = await flights_job.results(tmp_path)
    assert flights_job.plain(found) == expected(5_000)
    for letter in found.dead_letters:
        headers = dict(letter.headers)
        assert list(headers) == [f"__streams.errors.{name}" for name in HEADERS]
        assert headers["__streams.errors.exception"] == b"ValueError"
        assert headers["__streams.errors.topic"] == b"flights"


@pytest.mark.extended
@pytest.mark.heavy("thousands of records, one by one")
def test_topology_alone() -> None:
    """In the test driver, one record after the other, the first flights give the tables of polars."""
    # The flights are of the first days, and find no later weather.
    weather = [record for record in load.weather() if record[0].rpartition(b"|")[2] < b"2013-01-08"]
    with TopologyTestDriver(topology.build(), {"deserialization_exception_handler": "continue"}) as driver:
        tables = {"airlines": load.airlines(), "airports": load.airports(), "planes": load.planes(), "weather": weather}
        for name, records in {**tables, "flights": islice(load.flights(), 3_000)}.items():
            topic = driver.create_input_topic(name, BYTES, BYTES)
            for key, value, time in records:
                topic.pipe_input(key, value, timestamp_ms=time)
        by_hour = driver.create_output_topic(topology.BY_HOUR, topology.HOURLY_KEY, json(HourlyDelays)).read_records_to_list()
        by_carrier = driver.create_output_topic(topology.BY_CARRIER, STRING, json(CarrierReport)).read_records_to_list()
        by_model = driver.create_output_topic(topology.BY_MODEL, STRING, json(ModelDelays)).read_records_to_list()
    wanted = expected(3_000)
    assert {(key.key, key.window.start): flights_job.fields(value) for key, value in pairs(by_hour)} == wanted.by_hour
    assert {key: flights_job.flat(value) for key, value in pairs(by_carrier)} == wanted.by_carrier
    assert {key: flights_job.fields(value) for key, value in pairs(by_model)} == wanted.by_model


def pairs(records: Iterable[TestRecord[K, V]]) -> Iterator[tuple[K, V]]:
    """Yield keys and values of records that have both."""
    return ((record.key, record.value) for record in records if record.key is not None and record.value is not None)


@pytest.mark.extended
async def test_loading_goes_on_at_its_last_position(tmp_path: Path) -> None:
    """Loaded in two runs of the process, or by slices that did not get everywhere, the topics hold the same as after one run."""
    whole = Options(tmp_path / "whole", "exactly_once_v2", 5_000)
    parts = Options(tmp_path / "parts", "exactly_once_v2", 5_000)
    async with opened(whole) as log:
        await load.load(log, 5_000, lambda _: None)
        wanted = {name: await contents(log, name) for name in load.TOPICS}
    assert sum(map(len, wanted["flights"].values())) == 5_000
    async with opened(parts) as log:
        await load.load(log, 3_000, lambda _: None)
        short = [load.TOPICS["weather"], load.TOPICS["planes"]]
        assert [sum(await load.ends(log, topic)) for topic in short] == [26_115, 3_322]
    async with opened(parts) as log:
        told: list[int] = []
        await load.load(log, 5_000, told.append)
        assert told[-1] == 5_000
        assert {name: await contents(log, name) for name in load.TOPICS} == wanted


async def test_tables_are_loaded_in_slices(tmp_path: Path) -> None:
    """Loading that was killed amid a table goes on with the rest of it."""
    async with opened(Options(tmp_path, "exactly_once_v2", 0)) as log:
        await log.create_topics(load.TOPICS.values())
        producer = await log.producer(client_id="test")
        await load.fill(log, producer, load.TOPICS["planes"], islice(load.planes(), 1_000))
        await load.load(log, 100, lambda _: None)
        assert sum(await load.ends(log, load.TOPICS["planes"])) == 3_322
        rows = [value for part in (await contents(log, "planes")).values() for _, value, _ in part]
        assert set(rows) == {value for _, value, _ in load.planes()}


async def contents(log: Log, topic: str) -> dict[int, list[tuple[bytes | None, bytes | None, int]]]:
    """Return all records of a topic, in order, by partition."""
    records: dict[int, list[tuple[bytes | None, bytes | None, int]]] = {}
    async for found in committed(log, topic):
        batch = found.batch
        records.setdefault(found.partition.partition, []).extend(zip(batch.keys, batch.values, batch.timestamps, strict=True))
    return records


@pytest.mark.extended
async def test_processed_counts_flights_and_dead_letters(tmp_path: Path) -> None:
    """Before anything is processed nothing is, and in the end all of it, with anything in the log between the records."""
    async with opened(Options(tmp_path, "exactly_once_v2", 0)) as log:
        await load.load(log, 2_000, lambda _: None)
        assert await processed(log) == 0
    flights_job.run(tmp_path, "--limit", "2000")
    assert flights_job.run(tmp_path, "--limit", "2000").splitlines()[-1].startswith("0 flights in ")
    async with opened(Options(tmp_path, "exactly_once_v2", 0)) as log:
        assert await processed(log) == 2_000
