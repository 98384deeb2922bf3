"""An app is caught up when all records that its topology reads are processed, on any member; unread partitions are reported."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import pytest

from ks_actors import Consumed, LogTimeout, Produced, StreamsBuilder, TaskTimeout, WaitReason
from ks_actors.app._orders import CommitPace
from ks_actors.assignment import encode_member
from ks_actors.log import Outgoing, TopicPartition
from ks_actors.runtime.membership import _group_view
from ks_actors.runtime.shared import Metrics
from ks_actors.serdes import STRING
from ks_actors.testing import AppHarness
from ks_actors.topology import Topology
from tests.ks_actors.log.helpers import batch
from tests.ks_actors.runtime.helpers import in_app, in_virtual_time
from tests.waiting import until

STRINGS = Consumed(STRING, STRING)
TOPICS = {"orders": 2, "returns": 2, "out": 1}
WARNS_MS = 10_000


def reading(*topics: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream(topics, STRINGS).to("out", Produced(STRING, STRING))
    return builder.build()


ONE, TWO = reading("orders"), reading("orders", "returns")


@pytest.fixture
def _untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have members say nothing of their topologies, as those of releases before this one: the leader takes its own for theirs."""

    def told(owned: Any, *, topology: object, **more: Any) -> bytes:
        del topology
        return encode_member(owned, **more)

    monkeypatch.setattr(_group_view, "encode_member", told)


async def fill(harness: AppHarness, topic: str, *partitions: int) -> None:
    for number in partitions:
        await harness.produce(topic, b"k", f"{topic}-{number}".encode(), partition=number)


async def values(harness: AppHarness) -> list[object]:
    return sorted((record.value for record in await harness.read("out")), key=str)


def elsewhere(one: AppHarness, partitions: int = 2) -> int:
    """Return the number of a partition of orders that this instance does not have."""
    mine = {partition.partition for task in one.app._metrics.tasks.values() for partition in task.group.queues if partition.topic == "orders"}
    return next(number for number in range(partitions) if number not in mine)


@pytest.mark.usefixtures("_untold")
@in_app(ONE, topics=TOPICS, stall_warning_ms=WARNS_MS)
async def test_partitions_that_nobody_reads_are_told_of(harness: AppHarness, guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """The app is not caught up, and its waits, a figure and a line in the log name them; when the leader has gone they are read."""
    caplog.set_level(logging.INFO, logger="ks_actors")
    async with harness.another(TWO) as second:
        await fill(harness, "orders", 0, 1)
        with pytest.raises(TaskTimeout, match=r"no member of the group reads returns-0 \(0 offsets\), returns-1 \(0 offsets\)"):
            await second.app.wait_until_caught_up(1_000)
        await fill(harness, "returns", 0, 1)
        with pytest.raises(TaskTimeout, match=r"no member of the group reads returns-0 \(1 offsets\), returns-1 \(1 offsets\)"):
            await second.app.wait_until_caught_up(1_000)
        await harness.app.wait_until_caught_up()  # its topology does not read them
        await harness.kit.clock.advance(3 * WARNS_MS / 1000)
        unread = [wait for wait in second.app.waiting() if wait.reason is WaitReason.UNREAD]
        assert [(wait.task, wait.partition, wait.lag) for wait in unread] == [
            (None, TopicPartition("returns", 0), 1),
            (None, TopicPartition("returns", 1), 1),
        ]
        assert all(wait.waited_ms >= WARNS_MS for wait in unread)
        assert second.app.metrics()["stalled-partitions"] == 2
        assert "in returns-0 (1 offsets), returns-1 (1 offsets): no member of the group reads it" in caplog.text
        await harness.close()
        await second.app.wait_until_caught_up()
        assert await values(second) == ["orders-0", "orders-1", "returns-0", "returns-1"]
        await harness.kit.clock.advance(WARNS_MS / 1000)
        assert [wait.reason for wait in second.app.waiting()] == [WaitReason.RECORDS] * 2
        assert second.app.metrics()["stalled-partitions"] == 0
        assert caplog.text.count("is read again") == 2


@in_app(ONE, topics=TOPICS)
async def test_partitions_of_other_members_count_until_these_have_committed(harness: AppHarness, guarantee: str) -> None:
    """While another one is paused the app is not caught up, and the error names the partition; then it is, when the other has committed."""
    async with harness.another() as second:
        # The second one has begun when its first assignment has come, which may be empty: the partition is revoked first.
        await until(lambda: len(second.app.tasks()) == 1 and len(harness.app.tasks()) == 1)
        await harness.caught_up()
        number = elsewhere(harness)
        await second.app.pause()
        await fill(harness, "orders", 0, 1)
        with pytest.raises(TaskTimeout, match=rf"other members of the group have not committed orders-{number} \(1 offsets\)"):
            await harness.app.wait_until_caught_up(5_000)
        await second.app.resume()
        await harness.app.wait_until_caught_up()
        assert await values(harness) == ["orders-0", "orders-1"]


@in_app(ONE, topics=TOPICS)
async def test_a_wait_of_a_paused_app_names_the_pause(harness: AppHarness, guarantee: str) -> None:
    """The error says what to do; after `resume` the same wait ends."""
    await harness.caught_up()
    await harness.app.pause()
    await fill(harness, "orders", 0, 1)
    with pytest.raises(TaskTimeout, match="the app is paused: call resume"):
        await harness.app.wait_until_caught_up(5_000)
    await harness.app.resume()
    await harness.app.wait_until_caught_up()
    assert await values(harness) == ["orders-0", "orders-1"]


@in_app(ONE, topics=TOPICS, auto_offset_reset="latest")
async def test_unprocessed_records_are_not_waited_for(harness: AppHarness, guarantee: str) -> None:
    """Markers of transactions hold no records, and records before the latest are not read: another member commits nothing of either."""
    await harness.close()
    await fill(harness, "orders", 0, 1)
    await harness.start()
    async with harness.another():
        await harness.app.wait_until_caught_up(1_000)
        await fill(harness, "orders", 0, 1)
        await harness.app.wait_until_caught_up()
        producer = await harness.log.transactional_producer("feeder", client_id="feeder", timeout_ms=60_000)
        await producer.send([Outgoing(TopicPartition("orders", number), batch(b"x", keys=[b"k"])) for number in range(2)])
        await producer.abort()
        await producer.close()
        await harness.app.wait_until_caught_up(1_000)


def test_the_longer_the_wait_the_longer_between_two_commits() -> None:
    """As each pauses the workers; but what was processed is committed as soon as nothing more is."""
    now = 0.0
    pace, commits = CommitPace(lambda: now), list[int]()
    for look in range(3_000):
        if pace.due(look):
            commits.append(look)
        now += 0.02
    assert commits[:4] == [0, 1, 2, 3]
    assert len(commits) < 40
    assert max(then - before for before, then in pairwise(commits)) < 700
    assert not pace.due(5_000)
    assert [pace.due(5_000) for _ in range(5)] == [True, *[False] * 4]
    assert [pace.due(5_001) for _ in range(3)] == [False, True, False]


@in_virtual_time
async def test_waiting_for_a_log_that_does_not_answer_pauses_workers_seldom(guarantee: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to commit until it does: fewer than 200 pauses in a minute and a half."""
    pauses = list[float]()
    monkeypatch.setattr(Metrics, "paused", lambda _, clock: pauses.append(clock.took_ms))
    async with AppHarness(ONE, topics=TOPICS, processing_guarantee=guarantee, commit_interval_ms=1_000) as harness:
        await fill(harness, "orders", 0, 1)
        harness.fail("send", LogTimeout("no broker has answered within 60000 ms"), times=40)
        pauses.clear()
        await harness.caught_up()
        assert len(pauses) < 200
        assert await values(harness) == ["orders-0", "orders-1"]
