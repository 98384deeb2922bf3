"""The gathering of output that trickles, before it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors.testing import run_app
from tests.runtime.helpers import ALOS, echo

if TYPE_CHECKING:
    from ks_actors.testing import AppHarness

SECONDS = 10
RECORDS = 2_000
TOPICS = {"in": 1, "out": 1}


async def values(harness: AppHarness) -> list[str | None]:
    return [record.value for record in await harness.read("out")]


def test_output_after_a_quiet_moment_is_written_at_once_and_further_output_is_gathered() -> None:
    """The first record is not delayed; the next ones wait until half of linger_ms after it was sent, and leave together."""

    async def test(harness: AppHarness) -> None:
        await harness.produce("in", "a", "1")
        await harness.kit.clock.advance(1)
        assert await values(harness) == ["1"]
        for value in ("2", "3"):
            await harness.produce("in", "a", value)
            await harness.kit.clock.advance(1)
        assert await values(harness) == ["1"]
        await harness.kit.clock.advance(SECONDS)
        assert await values(harness) == ["1", "2", "3"]
        await harness.kit.clock.advance(SECONDS)
        await harness.produce("in", "a", "4")
        await harness.kit.clock.advance(1)
        assert await values(harness) == ["1", "2", "3", "4"]

    run_app(test, echo(), topics=TOPICS, processing_guarantee=ALOS, linger_ms=SECONDS * 1_000)


def test_a_commit_does_not_wait_for_output_to_be_gathered() -> None:
    """It writes the held-back records first, with any linger_ms."""

    async def test(harness: AppHarness) -> None:
        for value in ("1", "2"):
            await harness.produce("in", "a", value)
            await harness.kit.clock.advance(1)
        assert await values(harness) == ["1"]
        await harness.app.commit()
        assert await values(harness) == ["1", "2"]

    run_app(test, echo(), topics=TOPICS, processing_guarantee=ALOS, linger_ms=SECONDS * 1_000)


def test_much_output_is_not_held_back() -> None:
    """More than a quarter of a MiB is written at once, however short ago the last send was."""

    async def test(harness: AppHarness) -> None:
        await harness.produce("in", "a", "first")
        await harness.kit.clock.advance(1)
        for number in range(RECORDS):
            await harness.produce("in", "a", f"{number:0200}")
        await harness.kit.clock.advance(1)
        assert len(await values(harness)) > RECORDS // 2

    run_app(test, echo(), topics=TOPICS, processing_guarantee=ALOS, linger_ms=SECONDS * 1_000)


def test_without_linger_nothing_is_held_back() -> None:
    """With a linger_ms of 0 each record is written as soon as it is made."""

    async def test(harness: AppHarness) -> None:
        for value in ("1", "2", "3"):
            await harness.produce("in", "a", value)
            await harness.kit.quiesce()
        assert await values(harness) == ["1", "2", "3"]

    run_app(test, echo(), topics=TOPICS, processing_guarantee=ALOS, linger_ms=0)


def test_an_app_without_records_does_not_stop_its_workers() -> None:
    """Commits that are due find nothing to commit without a pause; the next record is committed all the same."""

    async def test(harness: AppHarness) -> None:
        await harness.kit.clock.advance(SECONDS)
        assert harness.app.metrics()["commit-pause-max"] == 0
        await harness.produce("in", "a", "1")
        await harness.kit.clock.advance(SECONDS)
        metrics = harness.app.metrics()
        assert metrics["commit-total"] == 1
        assert metrics["commit-pause-max"] > 0

    run_app(test, echo(), topics=TOPICS, commit_interval_ms=100)
