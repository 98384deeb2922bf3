"""A fetcher's errors: it waits for the temporary ones to pass, and raises the others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ks_actors._errors import LogClosed, LogCorrupted, LogError, LogTimeout, NotAuthorized, OffsetOutOfRange, UnknownTopicOrPartition
from ks_actors.log import TopicPartition
from ks_actors.log.kafka import KafkaLog
from ks_actors.log.kafka.client._connections import Unavailable
from ks_actors.log.kafka.consumer import _fetcher
from ks_actors.log.kafka.consumer._fetcher import KafkaFetcher
from tests.kafka.tampering import Tampering, damaged, fetch_answer, fetch_code, setting
from tests.ks_actors.log.helpers import COMMITTED, PATIENCE_MS, fetch_one, new_topic, write
from tests.waiting import soon, until

TOO_FAR = 1


async def filled(log: KafkaLog) -> TopicPartition:
    (partition,) = await new_topic(log)
    await write(await log.producer(client_id="p"), partition, b"a", b"b", b"c")
    return partition


def reading(log: KafkaLog, *partitions: TopicPartition) -> KafkaFetcher:
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign(dict.fromkeys(partitions, 0))
    return fetcher


async def until_ready(fetcher: KafkaFetcher, count: int) -> None:
    await until(lambda: len(fetcher._ready) >= count)


@pytest.mark.parametrize("code", [-1, 3, 5, 6, 9, 56, 74, 75, 78, TOO_FAR])
async def test_errors_that_pass_are_not_seen(log: KafkaLog, tampering: Tampering, code: int) -> None:
    """Leaders that move, storage that is slow, a position that is in the log after all."""
    partition = await filled(log)
    tampering.add("Fetch", fetch_code(code), fetch_code(code))
    assert (await soon(fetch_one(reading(log, partition)))).batch.values == [b"a", b"b", b"c"]
    assert tampering.left == 0


@pytest.mark.parametrize(("code", "kind"), [(2, LogCorrupted), (29, NotAuthorized), (76, LogError)])
async def test_errors_that_stay_are_told_once_each_time(log: KafkaLog, tampering: Tampering, code: int, kind: type[LogError]) -> None:
    """With the partition; reading goes on when the error is gone."""
    partition = await filled(log)
    tampering.add("Fetch", fetch_code(code))
    fetcher = reading(log, partition)
    with pytest.raises(kind, match=partition.topic):
        await soon(fetch_one(fetcher))
    assert (await soon(fetch_one(fetcher))).batch.values == [b"a", b"b", b"c"]


@pytest.mark.parametrize("place", [-2, 8])
async def test_damaged_records_are_fetched_again(log: KafkaLog, tampering: Tampering, place: int) -> None:
    """Whether the checksum shows it, or the length of the batch."""
    partition = await filled(log)
    tampering.add("Fetch", damaged(place))
    fetcher = reading(log, partition)
    with pytest.raises(LogCorrupted, match=partition.topic):
        await soon(fetch_one(fetcher))
    assert fetcher.position(partition) == 0
    assert (await soon(fetch_one(fetcher))).batch.values == [b"a", b"b", b"c"]


async def test_records_before_damaged_ones_are_read(log: KafkaLog, tampering: Tampering) -> None:
    """The damaged records are not read again."""
    partition = await filled(log)
    await write(await log.producer(client_id="p"), partition, b"d")
    tampering.add("Fetch", damaged(-2))
    fetcher = reading(log, partition)
    assert (await soon(fetch_one(fetcher))).batch.values == [b"a", b"b", b"c"]
    with pytest.raises(LogCorrupted, match="offset 3"):
        await soon(fetch_one(fetcher))
    assert (await soon(fetch_one(fetcher))).batch.values == [b"d"]


async def test_a_broker_that_is_busy_is_left_alone(log: KafkaLog, tampering: Tampering) -> None:
    """A busy broker is left alone for as long as it says."""
    partition = await filled(log)
    loop, answered = asyncio.get_running_loop(), list[tuple[float, int]]()

    def throttled(response: Any) -> Any:
        answered.append((loop.time(), tampering.count("FetchRequest")))
        response.throttle_time_ms = 400
        return response

    fetcher = reading(log, partition)
    tampering.add("Fetch", throttled)
    assert len((await soon(fetch_one(fetcher))).batch) == 3
    assert list(await fetcher.fetch(max_wait_ms=200)) == []
    ((at, before),) = answered
    await until(lambda: tampering.count("FetchRequest") != before)
    assert loop.time() - at >= 0.4
    await write(await log.producer(client_id="p"), partition, b"d")
    assert (await soon(fetch_one(fetcher))).batch.values == [b"d"]


async def test_a_broker_that_cannot_be_reached_is_tried_again(log: KafkaLog, tampering: Tampering, caplog: pytest.LogCaptureFixture) -> None:
    """It is said once that it cannot, and once that it can."""
    partition = await filled(log)
    tampering.add("Fetch", Unavailable("no way"), Unavailable("no way"))
    with caplog.at_level("INFO", "ks_actors"):
        assert len((await soon(fetch_one(reading(log, partition)))).batch) == 3
    said = [record.getMessage() for record in caplog.records if "broker" in record.getMessage()]
    assert len(said) == 2
    assert "no way" in said[0]
    assert "answers again" in said[1]


async def test_unexpected_errors_are_reported(log: KafkaLog, tampering: Tampering) -> None:
    """With its cause: a fetcher that is silent for ever would be worse."""
    partition = await filled(log)
    for kind in ("Fetch", "Metadata"):
        fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
        tampering.add(kind, ZeroDivisionError("oops"))
        log._client._topics.found.pop(partition.topic, None)
        fetcher.assign({partition: 0})
        with pytest.raises(LogError, match="ZeroDivisionError: oops") as raised:
            await soon(fetch_one(fetcher))
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
        assert len((await soon(fetch_one(fetcher))).batch) == 3
        await fetcher.close()


async def test_the_leader_may_not_be_known_at_once(log: KafkaLog, tampering: Tampering) -> None:
    """The client asks again when no leader is known."""
    partition = await filled(log)
    tampering.add("Metadata", *[Unavailable("no way")] * 4)
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    log._client._topics.found.pop(partition.topic, None)
    fetcher.assign({partition: 0})
    assert len((await soon(fetch_one(fetcher))).batch) == 3
    assert tampering.left == 0


@pytest.mark.parametrize(
    ("fault", "kind"), [(LogTimeout("late"), OffsetOutOfRange), (NotAuthorized("no"), NotAuthorized), (ZeroDivisionError("oops"), LogError)]
)
async def test_the_range_that_there_is_may_not_be_found(log: KafkaLog, tampering: Tampering, fault: Exception, kind: type[LogError]) -> None:
    """Temporary errors are waited for, others are raised."""
    partition = await filled(log)
    fetcher = reading(log, partition)
    tampering.add("Offset", fault)
    fetcher.seek(partition, 9)
    with pytest.raises(kind):
        await soon(fetch_one(fetcher))


async def test_an_error_comes_behind_the_records_of_others(log: KafkaLog) -> None:
    """They have been passed over: they must not be lost."""
    partition, other = await filled(log), await filled(log)
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({partition: 0, other: 9})
    await soon(until_ready(fetcher, 2))
    fetcher._ready = dict.fromkeys((partition, other))
    assert (await soon(fetch_one(fetcher))).partition == partition
    with pytest.raises(OffsetOutOfRange):
        await soon(fetch_one(fetcher))


async def test_errors_of_paused_partitions_wait(log: KafkaLog) -> None:
    """Until they are resumed."""
    partition = await filled(log)
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({partition: 9})
    await soon(until_ready(fetcher, 1))
    fetcher.pause([partition])
    assert list(await fetcher.fetch(max_wait_ms=10)) == []
    fetcher.resume([partition])
    with pytest.raises(OffsetOutOfRange):
        await soon(fetch_one(fetcher))


async def test_requests_from_before_a_seek_are_void(log: KafkaLog, tampering: Tampering) -> None:
    """Their errors are void too, also when the partition has been given up meanwhile."""
    partition = await filled(log)
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    tampering.add("Fetch", fetch_code(29))
    fetcher.assign({partition: 0})
    await until(lambda: "FetchRequest" in tampering.asked)
    fetcher.seek(partition, 1)
    assert (await soon(fetch_one(fetcher))).batch.values == [b"b", b"c"]
    fetcher.assign({})
    fetcher.assign({partition: 2})
    assert (await soon(fetch_one(fetcher))).batch.values == [b"c"]


async def test_a_fetcher_is_used_as_it_is_meant(log: KafkaLog) -> None:
    """By one at a time, for partitions that it has."""
    (partition,) = await new_topic(log)
    strange = TopicPartition("strange", 0)
    fetcher = reading(log, partition)
    with pytest.raises(LogError, match="strange-0"):
        fetcher.seek(strange, 0)
    with pytest.raises(LogError, match="strange-0"):
        fetcher.pause([partition, strange])
    with pytest.raises(LogError, match="strange-0"):
        fetcher.resume([strange])
    with pytest.raises(ValueError, match="max_records"):
        await fetcher.fetch(max_wait_ms=0, max_records=0)
    waiting = asyncio.ensure_future(fetcher.fetch(max_wait_ms=PATIENCE_MS))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(LogError, match="another fetch"):
        await fetcher.fetch(max_wait_ms=1)
    await fetcher.close()
    with pytest.raises(LogClosed):
        await waiting


async def test_a_partition_that_went_while_its_range_was_looked_for(log: KafkaLog, tampering: Tampering) -> None:
    """It is no error of a position then."""
    partition = await filled(log)
    fetcher = reading(log, partition)
    assert len((await soon(fetch_one(fetcher))).batch) == 3
    tampering.add("Fetch", fetch_code(TOO_FAR))
    tampering.add("Offset", UnknownTopicOrPartition("gone"))
    fetcher.seek(partition, 1)
    assert (await soon(fetch_one(fetcher))).batch.values == [b"b", b"c"]


async def test_an_invalid_answer_is_an_error(log: KafkaLog, tampering: Tampering) -> None:
    """A broker that answers about partitions that were not asked for."""
    partition = await filled(log)
    tampering.add("Fetch", setting(topics=[("nowhere", [(0, 0, 0, 0, 0, [], 0, None, b"")])]))
    fetcher = reading(log, partition)
    with pytest.raises(LogError, match="KeyError"):
        await soon(fetch_one(fetcher))
    assert len((await soon(fetch_one(fetcher))).batch) == 3


async def test_a_batch_that_was_cut_off_is_fetched_again(log: KafkaLog, tampering: Tampering) -> None:
    """There was no room for it in the answer."""

    def cut(partition: list[Any]) -> None:
        partition[-1] = partition[-1][:20]

    partition = await filled(log)
    tampering.add("Fetch", fetch_answer(cut))
    assert len((await soon(fetch_one(reading(log, partition)))).batch) == 3


async def test_a_partition_without_a_leader_is_waited_for(log: KafkaLog, tampering: Tampering) -> None:
    """An election takes its time."""

    def leaderless(response: Any) -> Any:
        response.topics = [(*before, dict.fromkeys(leaders, -1)) for *before, leaders in response.topics]
        return response

    partition = await filled(log)
    tampering.add("Metadata", leaderless, leaderless)
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    log._client._topics.found.pop(partition.topic, None)
    fetcher.assign({partition: 0})
    assert len((await soon(fetch_one(fetcher))).batch) == 3
    assert tampering.left == 0


@pytest.mark.parametrize("kind", ["Fetch", "Metadata", "Offset"])
async def test_a_client_that_is_closed_is_asked_no_more(log: KafkaLog, tampering: Tampering, kind: str) -> None:
    """Closing it closes its fetchers."""
    partition = await filled(log)
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    tampering.add(kind, LogClosed("closed"))
    if kind == "Metadata":
        log._client._topics.found.pop(partition.topic, None)
    fetcher.assign({partition: 9 if kind == "Offset" else 0})
    await until(lambda: not tampering.left)
    assert list(await fetcher.fetch(max_wait_ms=50)) == []


async def test_a_range_that_is_not_to_be_known_is_told(log: KafkaLog, tampering: Tampering) -> None:
    """As the broker says it."""

    def forbidden(response: Any) -> Any:
        response.topics = [(topic, [(number, 29, *rest) for number, _, *rest in partitions]) for topic, partitions in response.topics]
        return response

    partition = await filled(log)
    tampering.add("Offset", forbidden)
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({partition: 9})
    with pytest.raises(NotAuthorized, match=partition.topic):
        await soon(fetch_one(fetcher))


async def test_a_range_that_is_wanted_no_more_is_no_error(log: KafkaLog, tampering: Tampering) -> None:
    """The position is another one by then."""
    partition = await filled(log)
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({partition: 9})
    await until(lambda: "OffsetRequest" in tampering.asked)
    fetcher.assign({partition: 1})
    assert (await soon(fetch_one(fetcher))).batch.values == [b"b", b"c"]


async def test_records_for_a_paused_partition_are_kept(log: KafkaLog) -> None:
    """It was asked for before the pause."""
    partition = await filled(log)
    fetcher = reading(log, partition)
    fetcher.pause([partition])
    await asyncio.sleep(0)
    fetcher.resume([partition])
    await asyncio.sleep(0)
    fetcher.pause([partition])
    await until(lambda: fetcher._sources[partition].chunks)
    assert list(await fetcher.fetch(max_wait_ms=1)) == []
    fetcher.resume([partition])
    assert len((await soon(fetch_one(fetcher))).batch) == 3


async def test_a_slice_is_short(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have their turn on the loop, and partitions take turns."""
    monkeypatch.setattr(_fetcher, "_SLICE_SECONDS", 0)
    one, two = await filled(log), await filled(log)
    fetcher = reading(log, one, two)
    await soon(until_ready(fetcher, 2))
    seen = [(await soon(fetch_one(fetcher, max_records=2))).partition for _ in range(4)]
    assert seen in ([one, two, one, two], [two, one, two, one])


async def test_a_wait_goes_on_when_there_is_nothing_after_all(log: KafkaLog) -> None:
    """Until there is, or its time is up."""
    partition = await filled(log)
    fetcher = log.fetcher(client_id="r", isolation=COMMITTED)
    fetcher.assign({partition: 3})
    waiting = asyncio.ensure_future(fetch_one(fetcher))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    fetcher._wake()
    await asyncio.sleep(0)
    await write(await log.producer(client_id="p"), partition, b"d")
    assert (await soon(waiting)).batch.values == [b"d"]
