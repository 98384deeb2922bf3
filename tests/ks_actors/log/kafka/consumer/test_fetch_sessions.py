"""Requests and responses within a session (KIP-227) have only news: in virtual time against a broker in memory, and on a real Kafka."""

from __future__ import annotations

import asyncio
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors._errors import LogError
from ks_actors.log import NewTopic, TopicPartition
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.client import LeaderEpochs
from ks_actors.log.kafka.client._connections import Unavailable
from ks_actors.log.kafka.consumer._fetch_session import FetchSession
from ks_actors.log.kafka.consumer._fetcher import KafkaFetcher
from ks_actors.log.kafka.consumer._partition_reader import Budget, PartitionReader
from ks_actors.log.kafka.wire._fetch_request import FetchRequest, FetchResponse
from tests.kafka.broker import Broker
from tests.kafka.tampering import Tampering
from tests.ks_actors.log.helpers import COMMITTED, fetch_one, new_topic
from tests.ks_actors.log.kafka.consumer.fetch_schemas import FetchRequestV12, FetchResponseV12, topics_of
from tests.ks_actors.log.kafka.consumer.scripted import INVALID_EPOCH, NOT_FOUND, ScriptedBroker, fetching, partitions
from tests.ks_actors.log.kafka.consumer.test_fetch import numbered, numbers, read
from tests.ks_actors.log.kafka.consumer.test_fetch_fairness import RECORD, Reader
from tests.ks_actors.runtime.helpers import in_virtual_time
from tests.waiting import soon

NAMES = st.text("abcä-", min_size=1, max_size=5)
OFFSETS = st.integers(-1, (1 << 63) - 1)
SMALL = st.integers(0, (1 << 31) - 1)
ANSWERS = st.tuples(
    SMALL, st.integers(-1, 120), OFFSETS, OFFSETS, OFFSETS, st.lists(st.tuples(OFFSETS, OFFSETS), max_size=3), st.just(-1),
    st.none() | st.tuples(SMALL, OFFSETS), st.binary(max_size=300)
)  # fmt: skip


@given(
    st.dictionaries(NAMES, st.lists(st.tuples(SMALL, OFFSETS, SMALL), max_size=4)), st.dictionaries(NAMES, st.lists(SMALL, max_size=4)), SMALL, SMALL
)
def test_a_request_can_be_read_by_others(
    asked: dict[str, list[tuple[int, int, int]]], forgotten: dict[str, list[int]], session: int, epoch: int
) -> None:
    """Its bytes are those of Kafka's description, as aiokafka's types write them."""
    raw = FetchRequest(500, 1_000, 100, (session, epoch), list(asked.items()), forgotten, 1).encode()
    seen = FetchRequestV12.decode(BytesIO(raw))
    assert (seen.replica_id, seen.max_wait_time, seen.min_bytes, seen.max_bytes, seen.isolation_level) == (-1, 500, 1, 1_000, 1)
    assert (seen.session_id, seen.session_epoch, seen.rack_id) == (session, epoch, "")
    assert {topic: [(number, offset, epoch) for number, _, offset, epoch, *_ in entries] for topic, entries, _ in seen.topics} == asked
    assert all((leader, begin, most) == (-1, -1, 100) for _, entries, _ in seen.topics for _, leader, _, _, begin, most, _ in entries)
    assert {topic: numbers for topic, numbers, _ in seen.forgotten_topics_data} == forgotten
    header = FetchRequest(0, 0, 0, (0, 0), [], {}, 0).build_request_header(7, "me")
    assert header.encode() == FetchRequestV12().build_request_header(7, "me").encode()


@given(SMALL, st.integers(-1, 120), SMALL, st.lists(st.tuples(NAMES, st.lists(ANSWERS, max_size=3)), max_size=3))
def test_a_response_is_read_as_others_write_it(throttle: int, code: int, session: int, topics: list[tuple[str, list[tuple[object, ...]]]]) -> None:
    """All its fields, and empty records for none."""
    raw = FetchResponseV12(throttle, code, session, topics_of(topics), {}).encode()
    seen = FetchResponse.decode(BytesIO(raw))
    assert (seen.throttle_time_ms, seen.error_code, seen.session_id, seen.topics) == (throttle, code, session, topics)
    nothing = FetchResponseV12(0, 0, 0, topics_of([("t", [(0, 0, 0, 0, 0, [], -1, None, None)])]), {}).encode()
    assert FetchResponse.decode(BytesIO(nothing)).topics == [("t", [(0, 0, 0, 0, 0, [], -1, None, b"")])]


@in_virtual_time
async def test_requests_and_responses_have_the_new_fields() -> None:
    """Of 60 partitions the one that had records, and those that come or go."""
    every = partitions(60)
    broker = ScriptedBroker()
    fetcher = fetching(broker)
    fetcher.assign(dict.fromkeys(every, 0))
    reader = Reader(fetcher)
    await asyncio.sleep(1)
    assert [len(seen.asked) for seen in broker.seen] == [60, 0]
    broker.append(every[7], RECORD)
    await asyncio.sleep(0.1)
    assert broker.answered[-1] == [every[7]]
    assert (broker.seen[-1].asked, broker.seen[-1].forgotten) == ({every[7]: 1}, [])
    await asyncio.sleep(1)
    fetcher.pause(every[:2])
    await asyncio.sleep(1)
    assert sorted(partition for seen in broker.seen for partition in seen.forgotten) == every[:2]
    assert broker.seen[-1].partitions.keys() == set(every[2:])
    fetcher.assign(dict.fromkeys(every[3:5], 0) | dict.fromkeys(partitions(1, "new"), 0))
    await asyncio.sleep(2)
    assert broker.seen[-1].partitions.keys() == {*every[3:5], *partitions(1, "new")}
    await reader.close()


@pytest.mark.parametrize("fault", [NOT_FOUND, INVALID_EPOCH, Unavailable("gone"), "restart", "slots"])
@in_virtual_time
async def test_a_session_that_is_lost_is_begun_anew(fault: Exception | int | str) -> None:
    """With all partitions, and nothing is lost or comes twice; a broker that has no room for one is told all of them each time."""
    every = partitions(10)
    broker = ScriptedBroker(slots=0 if fault == "slots" else 10)
    fetcher = fetching(broker)
    fetcher.assign(dict.fromkeys(every, 0))
    reader = Reader(fetcher)
    for turn in range(20):
        await asyncio.sleep(0.2)
        broker.append(every[turn % 10], RECORD)
        if turn % 3 == 2:
            if fault == "restart":
                broker.restart()
            elif not isinstance(fault, str):
                broker.faults.append(fault)
    await reader.until(lambda: all(reader.next.get(partition) == 2 for partition in every))
    full = [seen for seen in broker.seen if len(seen.asked) == 10]
    assert len(full) == len(broker.seen) if fault == "slots" else 7 <= len(full) <= 8
    assert len(broker.sessions) <= 2
    await reader.close()


@pytest.mark.parametrize(("code", "pauses"), [(NOT_FOUND, True), (8, True), (-1, True), (31, False)])
@in_virtual_time
async def test_a_broker_that_refuses_whole_requests_is_not_asked_without_pause(code: int, pauses: bool) -> None:
    """The fetcher waits while an error may pass; it tells its owner of one that stays, with the partition."""
    (partition,) = partitions(1)
    broker = ScriptedBroker(KafkaOptions(linger_ms=0))
    broker.append(partition, RECORD)
    broker.faults += [code] * 4
    fetcher = fetching(broker)
    fetcher.assign({partition: 0})
    if pauses:
        assert len((await fetch_one(fetcher)).batch) == 1
        assert asyncio.get_running_loop().time() > 0.1
    else:
        for _ in range(4):
            with pytest.raises(LogError, match=r"fetching t-0 failed: .*CLUSTER_AUTHORIZATION"):
                await fetch_one(fetcher)
        assert len((await fetch_one(fetcher)).batch) == 1
    await fetcher.close()


def test_epochs_begin_again_behind_the_last_one() -> None:
    """The one that would be 0 stands for a new session."""
    session = FetchSession()
    session.answered(5)
    session._epoch = (1 << 31) - 1
    session.answered(5)
    assert (session._epoch, session.full) == (1, False)


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_each_partition_has_its_turn_however_the_others_come_and_go(first: int, second: int, data: st.DataObject) -> None:
    """Without a session: a partition that always has records is the first such one of a request within as many as there are partitions."""
    every = [*partitions(first), *partitions(second, "u")]
    readers = {partition: PartitionReader(partition, 0, Budget(1_000), LeaderEpochs(), lambda _: None) for partition in every}
    always, session = data.draw(st.sampled_from(every)), FetchSession()
    for response in range(1, len(every) + 1):
        chosen = dict.fromkeys([*data.draw(st.lists(st.sampled_from(every), unique=True)), always])
        at_end = {partition for partition in chosen if partition != always and data.draw(st.booleans())}
        assert not session.turn_to({partition: readers[partition] for partition in chosen})
        asked = [TopicPartition(topic, number) for topic, entries in session._asked for number, *_ in entries]
        assert sorted(asked) == sorted(chosen)
        served = next(partition for partition in asked if partition not in at_end)
        if served == always:
            return
        readers[served].served = response
        session.answered(0)
    pytest.fail(f"{always} was not the first in {len(every)} requests")


# --- on a real Kafka ----------------------------------------------------------------------------------------------------------


def sessions(fetcher: KafkaFetcher) -> list[FetchSession]:
    return [line.session for broker in fetcher._fetching._brokers.values() for line in broker.lines]


async def test_sixty_partitions_are_read_by_their_changes(log: KafkaLog, tampering: Tampering) -> None:
    """A broker sends one partition of 60 when one has records."""
    every = await new_topic(log, 60)
    producer = await log.producer(client_id="p")
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign(dict.fromkeys(every, 0))
    assert list(await fetcher.fetch(max_wait_ms=700)) == []
    answers: list[int] = []

    def note(response: FetchResponse) -> FetchResponse:
        answers.append(sum(len(entries) for _, entries in response.topics))
        return response

    tampering.add("Fetch", *[note] * 1_000)
    for partition in every:
        await producer.send([numbered(partition, 0, 3)])
        assert numbers((await soon(read(fetcher, {partition: 3})))[partition]) == [0, 1, 2]
    # A leader that is new to a partition tells its end twice; all of them each time would be 3,600.
    assert sum(answers) <= 5 * 60
    await fetcher.close()


@pytest.mark.parametrize("what", ["_id", "_epoch"])
async def test_a_broker_that_does_not_know_a_session_is_told_all(log: KafkaLog, what: str) -> None:
    """As when it has been restarted, or a request got lost."""
    one, two = await new_topic(log, 2)
    producer = await log.producer(client_id="p")
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({one: 0, two: 0})
    for turn in range(3):
        await producer.send([numbered(one, turn, turn + 1), numbered(two, turn, turn + 1)])
        assert await soon(read(fetcher, {one: 1, two: 1})) == {one: [b"%010d" % turn], two: [b"%010d" % turn]}
        for session in sessions(fetcher):
            setattr(session, what, getattr(session, what) + 7)
    await fetcher.close()


@pytest.mark.extended
@pytest.mark.heavy("a broker of its own")
async def test_a_broker_without_room_for_sessions_is_read(tmp_path: Path) -> None:
    """It takes each request for its own version."""
    broker = Broker(tmp_path / "broker", settings={"max.incremental.fetch.session.cache.slots": "0"})
    await asyncio.to_thread(broker.start)
    try:
        async with KafkaLog(broker.bootstrap) as log:
            every = await new_topic(log, 20)
            producer = await log.producer(client_id="p")
            fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
            fetcher.assign(dict.fromkeys(every, 0))
            for turn in range(3):
                await producer.send([numbered(partition, turn, turn + 1) for partition in every])
                assert await soon(read(fetcher, dict.fromkeys(every, 1))) == {partition: [b"%010d" % turn] for partition in every}
            assert all(session.full for session in sessions(fetcher))
    finally:
        await asyncio.to_thread(broker.kill)


@pytest.mark.extended
@pytest.mark.heavy("a broker of its own")
async def test_a_closed_fetcher_leaves_no_session(tmp_path: Path) -> None:
    """A broker keeps an unused session for two minutes, and has no room for others then: apps that restart would take it all."""
    # Brokers since 3.7 divide the slots by eight.
    broker = Broker(tmp_path / "broker", settings={"max.incremental.fetch.session.cache.slots": "32"})
    await asyncio.to_thread(broker.start)
    try:
        async with KafkaLog(broker.bootstrap) as log:
            every = await new_topic(log, 2)
            producer = await log.producer(client_id="p")
            await producer.send([numbered(partition, 0, 1) for partition in every])
            for _ in range(40):
                fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
                fetcher.assign(dict.fromkeys(every, 0))
                await soon(read(fetcher, dict.fromkeys(every, 1)))
                assert not all(session.full for session in sessions(fetcher))
                await fetcher.close()
    finally:
        await asyncio.to_thread(broker.kill)


async def test_a_topic_that_was_made_anew_is_read_by_the_same_session(log: KafkaLog) -> None:
    """Its name is the same, its records are others."""
    (partition,) = await new_topic(log)
    (other,) = await new_topic(log)
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    await (await log.producer(client_id="p")).send([numbered(partition, 0, 5), numbered(other, 0, 1)])
    fetcher.assign({partition: 0, other: 0})
    await soon(read(fetcher, {partition: 5, other: 1}))
    await log.delete_topics([partition.topic])
    await log.create_topics([NewTopic(partition.topic, 1)])
    fetcher.seek(partition, 0)
    await (await log.producer(client_id="q")).send([numbered(partition, 7, 9)])
    assert numbers((await soon(read(fetcher, {partition: 2})))[partition]) == [7, 8]
    await fetcher.close()
