"""Brokers that are cut off from their cluster, but not from clients: others lead and coordinate in their place. In virtual time."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from ks_actors import LogTimeout
from ks_actors.log import IsolationLevel, OffsetAndMetadata, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.client._connections import COORDINATION, MAIN
from ks_actors.log.kafka.wire import MetadataRequest
from ks_actors.records import Batch
from tests.ks_actors.log.kafka.client.answering import FIRST, SECOND, TOPIC, Brokers, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ks_actors.log.kafka import KafkaLog

AGE_S = 300
LOADING = 14
RECORD = Outgoing(FIRST, Batch([b"k"], [b"v"], [1]))


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    """Have five brokers; the first leads a partition, and the last one the other."""
    return Brokers(monkeypatch, count=5)


def connected(brokers: Brokers, *numbers: int, test: Callable[[KafkaLog], Awaitable[None]]) -> None:
    """Test with a log that has connections to some brokers."""

    async def run() -> None:
        async with brokers.log() as log:
            for channel in (MAIN, COORDINATION):
                for number in numbers:
                    await log._client.send(number, MetadataRequest([TOPIC]), channel=channel)
            assert await log._client.find_leader(FIRST) == 1
            await test(log)

    in_virtual_time(run)


@pytest.mark.parametrize("cut", [(1,), (1, 2)])
def test_the_next_leader_is_found_within_the_age_of_metadata(brokers: Brokers, cut: tuple[int, ...]) -> None:
    """Though no broker that is cut off answers with an error, and no other one has a connection; whoever wants to know is told once."""
    told = list[float]()

    async def test(log: KafkaLog) -> None:
        client, now = log._client, asyncio.get_running_loop().time
        end = client.watch_leaders(lambda: told.append(now()))
        brokers.cut_off(*cut)
        began = now()
        await asyncio.sleep(AGE_S + 1)
        assert client.leader(FIRST) == len(cut) + 1
        assert len(told) == 1
        assert told[0] - began <= AGE_S
        end()
        brokers.view[FIRST] = (5, 2)
        await asyncio.sleep(2 * AGE_S)
        assert (client.leader(FIRST), len(told)) == (5, 1)

    connected(brokers, *cut, test=test)


def test_a_topic_that_was_only_described_is_looked_up_again_once_its_leader_is_used(brokers: Brokers) -> None:
    """A client that has copied what another one knows does the same; one that has used no leader asks nothing."""

    async def test(log: KafkaLog) -> None:
        other, idle = log._another_client("other"), log._another_client("idle")
        for client in (other, idle):
            await client.start()
        assert other.leader(FIRST) == 1
        brokers.view[FIRST] = (4, 1)
        await asyncio.sleep(AGE_S)
        assert (other.leader(FIRST), idle.leader(FIRST)) == (4, 1)
        for client in (other, idle):
            await client.close()

    connected(brokers, 1, test=test)


def test_an_older_answer_does_not_overwrite_a_newer_one(brokers: Brokers) -> None:
    """Whichever broker is asked, a leader stays known, and so do partitions that were added."""

    async def test(log: KafkaLog) -> None:
        brokers.cut_off(1)
        third = SECOND._replace(partition=2)
        brokers.view[third] = (3, 0)
        client = log._client
        while client.leader(third) is None:
            await client.refresh()
        asked = brokers.count("Metadata", 1)
        for _ in range(10):
            await client.refresh()
            assert [client.leader(partition) for partition in (FIRST, SECOND, third)] == [2, 5, 3]
            assert len((await client.metadata([TOPIC]))[TOPIC].leaders) == 3
        assert brokers.count("Metadata", 1) > asked

    connected(brokers, 1, test=test)


def test_a_topic_that_was_made_anew_begins_with_new_epochs(brokers: Brokers) -> None:
    """It has another id, so its leaders replace those of the old one at once."""

    async def test(log: KafkaLog) -> None:
        brokers.view[FIRST] = (2, 7)
        await log._client.refresh()
        brokers.ids[TOPIC], brokers.view[FIRST] = "new", (3, 0)
        await log._client.refresh()
        assert log._client.leader(FIRST) == 3

    connected(brokers, 1, test=test)


def test_a_cluster_that_was_restored_from_a_former_state_is_believed_after_the_age_of_metadata(brokers: Brokers) -> None:
    """All brokers tell of the same older epoch from then on: nobody will ever tell of the newer one again."""

    async def test(log: KafkaLog) -> None:
        brokers.view[FIRST] = (2, 7)
        await log._client.refresh()
        brokers.view[FIRST] = (3, 4)
        await log._client.refresh()
        assert log._client.leader(FIRST) == 2
        await asyncio.sleep(2 * AGE_S)
        assert log._client.leader(FIRST) == 3

    connected(brokers, 1, test=test)


def test_records_reach_the_next_leader(brokers: Brokers) -> None:
    """The one that is cut off cannot replicate them: its REQUEST_TIMED_OUT is a reason to look for another one."""

    async def test(log: KafkaLog) -> None:
        producer = await log.producer(client_id="p")
        assert await producer.send([RECORD]) == [1]
        brokers.cut_off(1)
        async with asyncio.timeout(5):
            assert await producer.send([RECORD]) == [1]
        assert brokers.count("Produce", 2) == 1
        await producer.close()

    connected(brokers, 1, test=test)


def test_records_of_the_next_leader_are_fetched(brokers: Brokers) -> None:
    """Within the age of metadata, though the one that is cut off answers each fetch."""

    async def test(log: KafkaLog) -> None:
        fetcher = log.fetcher(client_id="r", isolation=IsolationLevel.READ_COMMITTED)
        fetcher.assign({FIRST: 0})
        assert await fetcher.fetch(max_wait_ms=1_000) == []
        brokers.cut_off(1)
        brokers.records[FIRST].append(b"a")
        (found,) = await fetcher.fetch(max_wait_ms=AGE_S * 1_000)
        assert found.batch.values == [b"a"]

    connected(brokers, 1, test=test)


def test_the_next_coordinator_is_found(brokers: Brokers) -> None:
    """The one that is cut off tells that it is the coordinator, so each lookup asks another broker."""

    async def test(log: KafkaLog) -> None:
        await log.set_group_offsets("g", {FIRST: OffsetAndMetadata(1)})
        brokers.cut_off(1)
        async with asyncio.timeout(5):
            await log.set_group_offsets("g", {FIRST: OffsetAndMetadata(2)})
        assert brokers.count("OffsetCommit", 2) == 1

    connected(brokers, 1, test=test)


def test_a_coordinator_that_refuses_for_a_whole_call_is_looked_up_again(brokers: Brokers) -> None:
    """One that is cut off may answer for as long as that lasts that it is not ready yet."""

    def asked() -> int:
        return sum(brokers.count("FindCoordinator", number) for number in brokers.brokers)

    async def test(log: KafkaLog) -> None:
        await log.set_group_offsets("g", {FIRST: OffsetAndMetadata(1)})
        lookups = asked()
        brokers.lasting["OffsetCommit"] = LOADING
        with pytest.raises(LogTimeout, match="COORDINATOR_LOAD_IN_PROGRESS"):
            await log.set_group_offsets("g", {FIRST: OffsetAndMetadata(2)})
        assert asked() == lookups
        brokers.lasting.clear()
        await log.set_group_offsets("g", {FIRST: OffsetAndMetadata(3)})
        assert asked() == lookups + 1

    connected(brokers, 1, test=test)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_the_leaders_are_known_in_the_end(brokers: Brokers, seed: int) -> None:
    """A reader that looks at them only when told has the right ones within the age of metadata after the last of any changes."""
    random = Random(seed)

    async def test(log: KafkaLog) -> None:
        client, seen = log._client, dict[TopicPartition, int | None]()

        def look() -> None:
            seen.update({partition: client.leader(partition) for partition in (FIRST, SECOND)})

        look()
        client.watch_leaders(look)
        for _ in range(random.randint(1, 12)):
            await asyncio.sleep(random.choice([0, 1, 100]))
            change = random.randrange(5)
            if change == 0:
                brokers.heal()
                brokers.cut_off(*random.sample(range(1, 6), random.choice([1, 2])))
            elif change == 1:
                brokers.heal()
            elif change == 2:
                partition = random.choice([FIRST, SECOND])
                whole = [number for number, broker in brokers.brokers.items() if not broker.cut_off]
                brokers.view[partition] = random.choice(whole), brokers.view[partition][1] + 1
            elif change == 3:
                await client.look_for([TOPIC])
            else:
                await client.metadata([TOPIC])
        await asyncio.sleep(AGE_S + 1)
        assert seen == {partition: leader for partition, (leader, _) in brokers.view.items()}

    connected(brokers, *random.sample(range(1, 6), random.choice([1, 2])), test=test)


def test_the_age_of_metadata_is_positive() -> None:
    """Another one is refused."""
    with pytest.raises(ValueError, match="metadata_max_age_ms is 0"):
        KafkaOptions(metadata_max_age_ms=0)
