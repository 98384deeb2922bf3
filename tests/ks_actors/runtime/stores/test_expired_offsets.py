"""The group's offsets have expired, or were deleted, and the state is still there."""

from __future__ import annotations

import pytest

from ks_actors.log import TopicPartition
from ks_actors.testing import AppHarness
from tests.ks_actors.log.helpers import outgoing
from tests.ks_actors.runtime.helpers import ALOS, EOS, by_key, counting, feed, in_app

TOPICS = {"in": 1, "out": 1}


async def count_and_close(harness: AppHarness, records: int = 5) -> None:
    for _ in range(records):
        await harness.produce("in", "k", "v")
    await harness.caught_up()
    await harness.close()


def expire_offsets(harness: AppHarness) -> None:
    del harness.log._broker.offsets["app"]


@in_app(counting("rocksdb"), topics=TOPICS, processing_guarantee=EOS)
async def test_a_task_goes_on_behind_the_records_of_its_stores(harness: AppHarness, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is counted twice, and a warning names task, partition, both positions and the remedy."""
    await count_and_close(harness)
    expire_offsets(harness)
    await harness.restart()
    await feed(harness, "in", "k", "v")
    assert by_key(await harness.read("out")) == {"k": [1, 2, 3, 4, 5, 6]}
    (told,) = [record.getMessage() for record in caplog.records if "no committed offset" in record.getMessage()]
    for part in (
        "of in-0",
        "task 0_0",
        "up to offset 5",
        "leads to offset 0",
        "continuing at offset 5",
        "run `ks-actors reset`",
        "commit the group's offsets",
    ):
        assert part in told


@in_app(counting("rocksdb"), topics=TOPICS, processing_guarantee=EOS, auto_offset_reset="latest")
async def test_latest_leaves_no_record_out_that_the_stores_do_not_have(harness: AppHarness) -> None:
    """With `auto_offset_reset` latest, too, a task goes on behind the records of its stores."""
    await count_and_close(harness)
    expire_offsets(harness)
    await harness.produce("in", "k", "while nobody was there")
    await harness.restart()
    await feed(harness, "in", "k", "v")
    assert by_key(await harness.read("out")) == {"k": [1, 2, 3, 4, 5, 6, 7]}


@in_app(counting("rocksdb"), topics=TOPICS, processing_guarantee=EOS)
async def test_state_that_does_not_know_its_position_is_told_of(harness: AppHarness, caplog: pytest.LogCaptureFixture) -> None:
    """A task restored from a changelog alone begins as `auto_offset_reset` says, and a warning says that records are processed twice."""
    await count_and_close(harness)
    expire_offsets(harness)
    harness.wipe_state()
    await harness.restart()
    await harness.caught_up()
    assert by_key(await harness.read("out")) == {"k": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}
    assert "without known positions: it starts with in-0 at offset 0" in caplog.text


@in_app(counting("rocksdb"), topics=TOPICS, processing_guarantee=EOS, num_standby_replicas=1)
async def test_changelogs_that_tell_positions_do_so_exactly_once(harness: AppHarness, caplog: pytest.LogCaptureFixture) -> None:
    """With standbys a wiped disk does not matter, as changelogs tell positions."""
    await count_and_close(harness)
    expire_offsets(harness)
    harness.wipe_state()
    await harness.restart()
    await feed(harness, "in", "k", "v")
    assert by_key(await harness.read("out")) == {"k": [1, 2, 3, 4, 5, 6]}
    assert "continuing at offset 5" in caplog.text


@in_app(counting("rocksdb"), topics=TOPICS, processing_guarantee=ALOS)
async def test_at_least_once_no_output_is_left_out(harness: AppHarness, caplog: pytest.LogCaptureFixture) -> None:
    """Stores may be ahead of the output there: the task begins as `auto_offset_reset` says, and a warning says that records come twice."""
    await count_and_close(harness)
    expire_offsets(harness)
    await harness.restart()
    await harness.caught_up()
    assert by_key(await harness.read("out")) == {"k": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}
    assert "starting at offset 0, as auto_offset_reset says" in caplog.text


@in_app(counting("rocksdb"), topics=TOPICS)
async def test_an_app_that_begins_is_told_nothing(harness: AppHarness, guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """Without state there is nothing to go on with."""
    await count_and_close(harness)
    assert "no committed offset" not in caplog.text


@in_app(counting("rocksdb"), topics=TOPICS, processing_guarantee=EOS)
async def test_an_app_whose_first_transaction_was_aborted_is_told_nothing(harness: AppHarness, caplog: pytest.LogCaptureFixture) -> None:
    """Its changelog has an end, but no state: nothing is processed twice."""
    await harness.close()
    producer = await harness.log.transactional_producer("first", client_id="first", timeout_ms=60_000)
    await producer.send([outgoing(TopicPartition("app-counts-changelog", 0), b"one")])
    await producer.abort()
    await producer.close()
    await harness.restart()
    await count_and_close(harness)
    assert by_key(await harness.read("out")) == {"k": [1, 2, 3, 4, 5]}
    assert "no committed offset" not in caplog.text
