"""Offsets that several ask for at the same time."""

from __future__ import annotations

import asyncio
import sys

import pytest

from ks_actors._errors import UnknownTopicOrPartition
from ks_actors.log import TopicPartition
from ks_actors.log.kafka import KafkaLog
from tests.kafka.tampering import Tampering
from tests.ks_actors.log.helpers import COMMITTED, UNCOMMITTED, new_topic, write
from tests.waiting import soon


async def _filled(log: KafkaLog, partitions: int) -> list[TopicPartition]:
    """Return partitions of a new topic, the first with one record, the second with two and so on."""
    found = await new_topic(log, partitions)
    producer = await log.producer(client_id="p")
    for number, partition in enumerate(found):
        await write(producer, partition, *[b"v"] * (number + 1))
    await log.end_offsets(found, UNCOMMITTED)  # their leaders are known now
    return found


async def test_equal_lookups_at_the_same_time_share_one_request(log: KafkaLog, tampering: Tampering) -> None:
    """Each gets the offsets that it asked for and no more; begins and ends are two requests."""
    partitions = await _filled(log, 4)
    tampering.asked.clear()
    begins = asyncio.gather(*(log.begin_offsets([partition]) for partition in partitions))
    ends = asyncio.gather(*(log.end_offsets([partition], UNCOMMITTED) for partition in partitions))
    assert await begins == [{partition: 0} for partition in partitions]
    assert await ends == [{partition: number + 1} for number, partition in enumerate(partitions)]
    assert tampering.count("Offset") == 2


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
async def test_lookups_are_shared_where_tasks_begin_at_once(log: KafkaLog, tampering: Tampering) -> None:
    """An eager task factory changes neither the offsets nor the number of requests."""
    partitions = await _filled(log, 2)
    asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009 - not there on 3.11, for type checkers too
    tampering.asked.clear()
    ends = await soon(asyncio.gather(*(log.end_offsets([partition], UNCOMMITTED) for partition in partitions)))
    assert ends == [{partition: number + 1} for number, partition in enumerate(partitions)]
    assert tampering.count("Offset") == 1


async def test_different_lookups_are_separate_requests(log: KafkaLog, tampering: Tampering) -> None:
    """Last stable offsets are none of those behind the last record, and times of several kinds are no one question."""
    one, two = await _filled(log, 2)
    former = await log.transactional_producer("former", client_id="t", timeout_ms=60_000)
    await write(former, two, b"pending")
    tampering.asked.clear()
    stable, end, times = await asyncio.gather(
        log.end_offsets([one, two], COMMITTED), log.end_offsets([two], UNCOMMITTED), log.offsets_for_times({one: 0, two: 1_000})
    )
    assert stable == {one: 1, two: 2}
    assert end == {two: 3}
    assert times == {one: 0, two: 3}
    assert tampering.count("Offset") >= 3
    await former.abort()


async def test_a_failing_caller_takes_no_other_with_it(log: KafkaLog) -> None:
    """The others of the same request get their answers."""
    one, two = await _filled(log, 2)
    first = asyncio.ensure_future(log.begin_offsets([one]))
    second = asyncio.ensure_future(log.begin_offsets([two]))
    for _ in range(3):
        await asyncio.sleep(0)
    first.cancel()
    assert await soon(second) == {two: 0}
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_failure_is_for_the_askers_of_the_failed_call(log: KafkaLog) -> None:
    """A topic that is gone does not keep others from their offsets."""
    one, two = await _filled(log, 2)
    nowhere = TopicPartition("nowhere", 0)
    good, bad = await asyncio.gather(log.begin_offsets([one, two]), log.begin_offsets([nowhere]), return_exceptions=True)
    assert good == {one: 0, two: 0}
    assert isinstance(bad, UnknownTopicOrPartition)
