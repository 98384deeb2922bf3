"""A backfill from a real Kafka, and the stream after it, give the same results as a stream over all records: for every operator.

The cases are those of the embedded log, all of them, and compared with the same: a stream over everything on the embedded log. So every operation of
the DSL, every kind of window, join and store, and the Processor API are in at least one. Not here, as there: stream-time punctuators (when one is
called next is scheduled anew in every task that begins) and wall-clock punctuators (history has no clock: a backfill refuses them).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest

from examples.flights import history
from examples.flights.job import Options
from ks_actors.log.kafka import KafkaLog
from tests.examples import flights_job
from tests.examples.flights_expected import expected
from tests.kafka.broker import Broker
from tests.ks_actors.batch.backfill.test_handover import HANDED_OVER, Whole, handed_over
from tests.ks_actors.batch.renaming import renamed
from tests.ks_actors.log.helpers import group_name

Guarantee: TypeAlias = Literal["at_least_once", "exactly_once_v2"]

TOGETHER = 4  # apps that wait for the broker at the same time
LIVE = 6
FLIGHTS = 3_000
JANUARY_3 = 1_357_171_200_000
GUARANTEES: tuple[Guarantee, ...] = ("at_least_once", "exactly_once_v2")
# Records are of 1970: a broker would delete those of windows from changelogs as soon as it looks.
SETTINGS = {"commit_interval_ms": 100, "windowstore_changelog_additional_retention_ms": 1 << 62}
GROUPS = [HANDED_OVER[start : start + TOGETHER] for start in range(0, len(HANDED_OVER), TOGETHER)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("names", "number"), [pytest.param(names, number, id=f"{names[0]}..{names[-1]}") for number, names in enumerate(GROUPS)])
def test_backfill_and_live_tail_are_a_stream_over_all_records(names: list[str], number: int, kafka_broker: Broker, tmp_path: Path) -> None:
    """Record for record and key for key, with two partitions, behind repartition topics too; each guarantee has every other topology."""
    run = group_name()
    wholes = [
        Whole(name, LIVE, **SETTINGS, application_id=f"{run}-{name}", processing_guarantee=GUARANTEES[(number + at) % 2])
        for at, name in enumerate(names)
    ]
    for whole, (written, stores) in zip(wholes, asyncio.run(all_handed_over(kafka_broker, run, wholes, tmp_path)), strict=True):
        whole.check(written, stores, f"{whole.settings['application_id']}.")


async def all_handed_over(broker: Broker, run: str, wholes: list[Whole], directory: Path) -> list[Any]:
    """Do so with one app for each, side by side; leave nothing behind."""
    async with KafkaLog(broker.bootstrap) as log:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one_handed_over(log, whole, directory / whole.name), name=whole.name) for whole in wholes]
        await log.delete_topics([topic for topic in await log.describe_topics() if topic.startswith(run)])
    return [task.result() for task in tasks]


async def one_handed_over(log: KafkaLog, whole: Whole, directory: Path) -> Any:
    """Do so with topics of its own."""
    prefix = f"{whole.settings['application_id']}."
    topology = renamed(whole.topology, prefix)
    return await handed_over(log, topology, whole.settings, whole.topics, whole.history, whole.tail, directory, one_by_one=True, prefix=prefix)


@pytest.mark.timeout(300)
async def test_flights_of_history_and_the_live_rest_are_the_whole(own_broker: Broker, tmp_path: Path) -> None:
    """The flights job: its tables are those of polars over all flights, which are those of a stream on the embedded log."""
    async with KafkaLog(own_broker.bootstrap) as log:
        found = await history.run_on(log, Options(tmp_path, "exactly_once_v2", FLIGHTS), JANUARY_3)
    assert FLIGHTS > history.reported_before(JANUARY_3, FLIGHTS) > 0
    assert flights_job.plain(found.results) == expected(FLIGHTS)
