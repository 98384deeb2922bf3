"""A partition that loses its log while an app reads it: no record of the new log is passed over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ks_actors.log import TopicPartition
from ks_actors.runtime import UncaughtResponse
from ks_actors.testing import AppHarness, TestRecord, run_app
from tests.runtime.helpers import EOS, GUARANTEES, Bomb, echo

IN = TopicPartition("in", 0)
SETTINGS: dict[str, Any] = {
    "max_poll_interval_ms": 600_000,
    "transaction_timeout_ms": 120_000,
    "uncaught_handler": lambda error: UncaughtResponse.REPLACE_WORKER,
}


def lose(harness: AppHarness, name: TopicPartition) -> None:
    """Let a partition have no records any more, and begin at offset 0 again."""
    partition = harness.log._broker.partitions[name]
    partition.drop_before(partition.end)
    partition.begin = partition.end = 0
    partition.notify()


async def write(harness: AppHarness, name: str, numbers: range) -> None:
    await harness.produce_all("in", [TestRecord("k", f"{name}{number}", number) for number in numbers])
    await harness.kit.clock.advance(1)


def of(name: str, numbers: range) -> list[str]:
    return [f"{name}{number}" for number in numbers]


async def written(harness: AppHarness) -> list[Any]:
    return [record.value for record in await harness.read("out")]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_rollback_does_not_go_to_a_position_of_the_former_log(guarantee: str) -> None:
    """It goes to the first record of the new one, although the committed position lies within it by then."""
    bomb = Bomb()

    async def test(harness: AppHarness) -> None:
        await write(harness, "old", range(10))
        await harness.app.commit()
        lose(harness, IN)
        await write(harness, "new", range(3))
        bomb.armed = 1
        await write(harness, "new", range(3, 20))
        assert bomb.exploded == 1
        await harness.caught_up()
        found = await written(harness)
        assert found[:10] == of("old", range(10))
        assert set(found[10:]) == set(of("new", range(20)))
        if guarantee == EOS:
            assert found[10:] == of("new", range(20))

    run_app(test, echo(bomb), topics={"in": 1, "out": 1}, processing_guarantee=guarantee, commit_interval_ms=60_000, **SETTINGS)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_commit_under_way_does_not_bring_back_a_position_of_the_former_log(guarantee: str) -> None:
    """A rollback behind it goes to the first record of the new log, too."""
    bomb = Bomb()

    async def test(harness: AppHarness) -> None:
        await write(harness, "old", range(10))
        held = harness.log.hold("commit" if guarantee == EOS else "commit_offsets")
        committing = asyncio.create_task(harness.app.commit())
        await harness.kit.clock.advance(0.1)
        lose(harness, IN)
        await write(harness, "new", range(3))
        held.set()
        await committing
        bomb.armed = 1
        await write(harness, "new", range(3, 20))
        assert bomb.exploded == 1
        await harness.caught_up()
        found = await written(harness)
        assert found[:10] == of("old", range(10))
        assert set(found[10:]) == set(of("new", range(20)))
        if guarantee == EOS:
            assert found[10:] == of("new", range(20))

    run_app(test, echo(bomb), topics={"in": 1, "out": 1}, processing_guarantee=guarantee, commit_interval_ms=60_000, **SETTINGS)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_restart_begins_with_the_new_log_though_records_of_the_former_one_are_buffered(guarantee: str) -> None:
    """Their offsets are not committed: in the new log other records have them."""

    async def test(harness: AppHarness) -> None:
        await write(harness, "old", range(10))
        await harness.app.commit()
        await harness.app.pause()
        await write(harness, "old", range(10, 20))
        lose(harness, IN)
        await write(harness, "new", range(3))
        await write(harness, "new", range(3, 25))
        await harness.app.commit()
        assert harness.log._groups.get("app").committed()[IN].offset == 0
        await harness.close()
        await harness.start()
        await harness.caught_up()
        found = await written(harness)
        assert found[:10] == of("old", range(10))
        assert found[-25:] == of("new", range(25))

    run_app(test, echo(), topics={"in": 1, "out": 1}, processing_guarantee=guarantee, commit_interval_ms=60_000, **SETTINGS)
