"""Records that wait until serdes can read them: what happens to them meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ks_actors.log import Fetched, IsolationLevel, NewTopic, Outgoing
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.records import Batch, TopicPartition
from ks_actors.runtime.shared._awaited_serdes import _LearningFetcher

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
WHOLE = [(ONE, [0, 1, 2]), (TWO, [0, 1, 2])]


class Serdes:
    """Serdes that wait, until the test says that they have learned, or failed."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def learn(self, _fetched: Iterable[Fetched]) -> None:
        self.asked.set()
        await self.outcome


async def fetch(meanwhile: Callable[[_LearningFetcher], object], outcome: Exception | None = None) -> list[tuple[TopicPartition, list[int]]]:
    """Return the offsets that a fetch returns, or the next one after a failure; something happens while the serdes wait."""
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("t", 2)])
        producer = await log.producer(client_id="p")
        await producer.send([Outgoing(one, Batch([b"k"] * 3, [b"v"] * 3, [1, 2, 3])) for one in (ONE, TWO)])
        await producer.close()
        serdes: Any = Serdes()
        fetcher = _LearningFetcher(log.fetcher(client_id="f", isolation=IsolationLevel.READ_COMMITTED), serdes)
        fetcher.assign({ONE: 0, TWO: 0})
        fetching = asyncio.ensure_future(fetcher.fetch(max_wait_ms=1000))
        await serdes.asked.wait()
        meanwhile(fetcher)
        if outcome is None:
            serdes.outcome.set_result(None)
            found = await fetching
        else:
            serdes.outcome.set_exception(outcome)
            with pytest.raises(type(outcome)):
                await fetching
            serdes.outcome = asyncio.get_running_loop().create_future()
            serdes.outcome.set_result(None)
            found = await fetcher.fetch(max_wait_ms=1000)
        await fetcher.close()
        return sorted((one.partition, list(one.batch.offsets)) for one in found)


async def test_records_that_waited_are_returned() -> None:
    """Assigning the same partitions at their positions changes nothing."""
    assert await fetch(lambda _: None) == WHOLE
    assert await fetch(lambda fetcher: fetcher.assign({one: fetcher.position(one) for one in (ONE, TWO)})) == WHOLE


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda fetcher: fetcher.seek(ONE, 1),
        lambda fetcher: fetcher.assign({TWO: 3}),
        lambda fetcher: fetcher.assign({ONE: 0, TWO: 3}),
        lambda fetcher: (fetcher.assign({TWO: 3}), fetcher.assign({ONE: 3, TWO: 3})),
    ],
)
async def test_records_of_a_partition_that_has_moved_meanwhile_are_dropped(meanwhile: Any) -> None:
    """They belong to the position before; those of other partitions are returned."""
    assert await fetch(meanwhile) == WHOLE[1:]


async def test_records_are_fetched_again_after_a_failure() -> None:
    """From the first one on, but for partitions that have moved meanwhile."""
    assert await fetch(lambda _: None, OSError()) == WHOLE
    assert await fetch(lambda fetcher: fetcher.seek(ONE, 2), OSError()) == [(ONE, [2]), WHOLE[1]]
