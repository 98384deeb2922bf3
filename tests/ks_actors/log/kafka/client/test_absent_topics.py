"""When a topic that brokers do not know counts as missing."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Final

import pytest

from ks_actors._errors import UnknownTopicOrPartition
from ks_actors.log import TopicPartition
from ks_actors.log.kafka.client._connections import Unavailable
from ks_actors.log.kafka.client._known_topics import KnownTopics
from tests.ks_actors.runtime.helpers import in_virtual_time

PLACE: Final = TopicPartition("t", 0)
WAIT_S: Final = 1.0
UNKNOWN, NO_LEADER = 3, 5


def hear(topics: KnownTopics, code: int) -> None:
    topics.note(SimpleNamespace(topics=[(code, "t", False, [])]))


def wanting() -> tuple[KnownTopics, float]:
    topics = KnownTopics(0.0, WAIT_S)
    topics.tracked.add("t")
    return topics, asyncio.get_running_loop().time()


@pytest.mark.parametrize("apart_s", [0.1, 3.0])
@in_virtual_time
async def test_a_topic_is_missing_when_answers_tell_so_for_the_whole_wait(apart_s: float) -> None:
    """Also slow answers do; the first one alone does not, and one of before the wait does not count."""
    topics, _ = wanting()
    hear(topics, UNKNOWN)
    await asyncio.sleep(10)
    began = asyncio.get_running_loop().time()
    hear(topics, UNKNOWN)
    assert isinstance(topics.why_no_leader(PLACE, since=began), Unavailable)
    while isinstance(topics.why_no_leader(PLACE, since=began), Unavailable):
        await asyncio.sleep(apart_s)
        hear(topics, UNKNOWN)
    assert WAIT_S <= asyncio.get_running_loop().time() - began < WAIT_S + apart_s
    assert isinstance(topics.why_no_leader(PLACE, since=began), UnknownTopicOrPartition)


@pytest.mark.parametrize("other", ["silence", "refusal"])
@in_virtual_time
async def test_neither_silence_nor_refusals_tell_that_a_topic_is_missing(other: str) -> None:
    """The wait begins again with the first answer behind them."""
    topics, began = wanting()
    hear(topics, UNKNOWN)
    await asyncio.sleep(WAIT_S)
    if other == "silence":
        topics.fall_silent()
    else:
        hear(topics, NO_LEADER)
    hear(topics, UNKNOWN)
    assert isinstance(topics.why_no_leader(PLACE, since=began), Unavailable)
    await asyncio.sleep(WAIT_S)
    hear(topics, UNKNOWN)
    assert isinstance(topics.why_no_leader(PLACE, since=began), UnknownTopicOrPartition)
