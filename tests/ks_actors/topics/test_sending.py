"""Records that programs send: their places, batches, limits, errors and ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest

from ks_actors import (
    ConfigError,
    KsActorsError,
    LogTimeout,
    NotAuthorized,
    NotRunning,
    ProduceFailed,
    Publisher,
    Record,
    RecordTooLarge,
    SerializationError,
    StreamsConfig,
    StreamsError,
    Topic,
    TopicRecord,
    TopologyError,
    UnknownTopicOrPartition,
    partition_of,
)
from ks_actors.dsl import TimeWindows
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog, EmbeddedProducer
from ks_actors.records import Window, Windowed
from ks_actors.serdes import STRING, windowed
from ks_actors.topics import _sender
from ks_actors.topics._sender import RecordSender
from tests.ks_actors.runtime.helpers import in_virtual_time
from tests.ks_actors.topics.helpers import ORDERS, TEXTS, Order, publishing

SEVENTEEN = 17


async def all_of(publisher: Publisher, topic: Topic[Any, Any]) -> list[TopicRecord[Any, Any]]:
    return [record async for record in publisher.records(topic, until="end")]


class Writes:
    """The writes of a producer, by the number of records of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: list[int] = []
        send = EmbeddedProducer.send

        async def counted(producer: EmbeddedProducer, batches: Sequence[Outgoing], /) -> Sequence[int]:
            self.counts += [len(outgoing.batch) for outgoing in batches]
            return await send(producer, batches)

        monkeypatch.setattr(EmbeddedProducer, "send", counted)


@in_virtual_time
async def test_a_sent_record_is_in_the_log_when_the_call_returns() -> None:
    """With its key, value, time and headers, at the place that the result names."""
    async with publishing() as (publisher, log):
        sent = await publisher.send(ORDERS, "ann", Order(5), timestamp_ms=SEVENTEEN, headers=(("trace", b"1"), ("none", None)))
        place = TopicPartition("orders", partition_of(b"ann", 4))
        assert sent == ("orders", place.partition, 0, SEVENTEEN)
        fetcher = log.fetcher(client_id="test")
        fetcher.assign({place: 0})
        (batch,) = [fetched.batch for fetched in await fetcher.fetch(max_wait_ms=0)]
        assert (batch.keys, batch.values, batch.timestamps) == ([b"ann"], [b'{"cents":5}'], [SEVENTEEN])
        assert batch.headers == [(("trace", b"1"), ("none", None))]
        await fetcher.close()


async def test_null_is_sent_as_null() -> None:
    """A key, a value, or both; neither needs a serde then."""
    async with publishing() as (publisher, _):
        await publisher.send("texts", "a", None, key_serde=str)
        await publisher.send("texts", None, "b", value_serde=STRING)
        await publisher.send("texts", None, None)
        assert [(each.key, each.value) for each in await all_of(publisher, TEXTS)] == [("a", None), (None, "b"), (None, None)]


async def test_calls_at_the_same_time_share_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each partition: the cost of a request is not that of a record."""
    writes = Writes(monkeypatch)
    async with publishing() as (publisher, _):
        sent = await asyncio.gather(*(publisher.send(ORDERS, str(number), Order(number)) for number in range(1_000)))
        assert len(writes.counts) == 4
        assert sum(writes.counts) == len({(each.partition, each.offset) for each in sent}) == 1_000
        found = {(each.partition, each.offset): each.key for each in await all_of(publisher, ORDERS)}
        assert [found[each.partition, each.offset] for each in sent] == [str(number) for number in range(1_000)]


@in_virtual_time
async def test_records_that_come_during_a_write_are_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition has one write at a time, and others do not wait for it."""
    writes = Writes(monkeypatch)
    async with publishing() as (publisher, log):
        await publisher.send(TEXTS, "a", "first")
        held = log._faults.hold("send")
        calls = [asyncio.ensure_future(publisher.send(TEXTS, "a", text)) for text in "bcd"]
        await asyncio.sleep(1)
        calls += [asyncio.ensure_future(publisher.send(TEXTS, "a", text)) for text in "efgh"]
        await asyncio.sleep(1)
        held.set()
        assert [each.offset for each in await asyncio.gather(*calls)] == [1, 2, 3, 4, 5, 6, 7]
        assert writes.counts == [1, 3, 4]
        assert [each.value for each in await all_of(publisher, TEXTS)] == ["first", *"bcdefgh"]


async def test_many_records_are_sent_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an iterable, plain or async; Records and read records keep their times and headers."""
    writes = Writes(monkeypatch)

    async def more() -> AsyncIterator[Record[str, str]]:
        for number in range(3):
            yield Record("k", str(number), number, (("h", b"1"),))

    async with publishing() as (publisher, log):
        await log.create_topics([NewTopic("copy", 1)])
        assert await publisher.send_many(TEXTS, (("k", str(number)) for number in range(2_500))) == 2_500
        assert len(writes.counts) <= 3
        assert await publisher.send_many(TEXTS, more()) == 3
        assert await publisher.send_many(TEXTS, []) == 0
        copy = Topic("copy", str, str)
        assert await publisher.send_many(copy, publisher.records(TEXTS, until="end", from_={0: 2_499})) == 4
        found = await all_of(publisher, copy)
        assert [each.value for each in found] == ["2499", "0", "1", "2"]
        assert [each.timestamp_ms for each in found[1:]] == [0, 1, 2]
        assert [each.headers for each in found] == [(), *[(("h", b"1"),)] * 3]


async def test_an_error_of_many_records_comes_after_those_before_it() -> None:
    """They are written; the first error is the one that is raised, also that of the iterable."""

    def records(last: Exception | None = None) -> Iterator[tuple[Any, Any]]:
        yield from (("k", str(number)) for number in range(1_000))
        if last is not None:
            raise last
        yield "k", 17

    async with publishing() as (publisher, log):
        with pytest.raises(SerializationError, match="its value, of type int"):
            await publisher.send_many(TEXTS, records())
        assert len(await all_of(publisher, TEXTS)) == 1_000
        with pytest.raises(ValueError, match="no more"):
            await publisher.send_many(TEXTS, records(ValueError("no more")))
        assert len(await all_of(publisher, TEXTS)) == 2_000
        log.inject("send", ProduceFailed({TopicPartition("texts", 0): NotAuthorized("denied")}))
        with pytest.raises(NotAuthorized, match="texts-0: denied"):
            await publisher.send_many(TEXTS, records())
        for wrong in (["text"], [("a", "b", "c")], [17]):
            with pytest.raises(TypeError, match=r"send_many got .*: give pairs of key and value, or Records"):
                await publisher.send_many(TEXTS, wrong)  # type: ignore[arg-type]


def chosen(topic: str, key: str, value: str, size: int) -> Any:
    """Choose as the value says."""
    del topic, key, size
    return {"two": [0, 1], "none": [], "default": None, "list": [2]}.get(value, SEVENTEEN)


async def test_the_partition_is_the_given_one_or_that_of_the_partitioner() -> None:
    """By default Kafka's own; a partitioner may leave it to that, but a record has one place."""
    odd = Topic("orders", str, str, partitioner=chosen)
    async with publishing() as (publisher, _):
        assert (await publisher.send(odd, "ann", "17", partition=3)).partition == 3
        assert (await publisher.send(odd, "ann", "list")).partition == 2
        assert (await publisher.send(odd, "ann", "default")).partition == partition_of(b"ann", 4)
        for value in ("two", "none", "other"):
            with pytest.raises(StreamsError, match="partitioner of topic orders returned"):
                await publisher.send(odd, "ann", value)
        with pytest.raises(UnknownTopicOrPartition, match="topic orders has partitions 0 to 3, and no 4"):
            await publisher.send(odd, "ann", "list", partition=4)
        assert len({(await publisher.send(ORDERS, None, Order(1))).partition for _ in range(4)}) == 4


async def test_all_windows_of_a_key_are_in_the_partition_of_the_key() -> None:
    """As a topology writes them."""
    size = TimeWindows.of_size_with_no_grace(10)
    windows = Topic("orders", windowed(STRING, size), str)
    async with publishing() as (publisher, _):
        for start in range(0, 100, 10):
            sent = await publisher.send(windows, Windowed("ann", Window(start, start + 10)), "x")
            assert sent.partition == partition_of(b"ann", 4)


async def too_large(publisher: Publisher) -> None:
    await publisher.send(TEXTS, "a", "x" * 2_000_000)


WRONG: list[tuple[Callable[[Any], Coroutine[Any, Any, object]], type[KsActorsError], str]] = [
    (lambda p: p.send("orders", "a", Order(1)), TopologyError, "serde of keys of topic orders is not known: give key_serde=str, or Topic"),
    (lambda p: p.send("orders", "a", Order(1), key_serde=str), TopologyError, "values of topic orders is not known: give value_serde=Order"),
    (lambda p: p.send(ORDERS, 17, Order(1)), SerializationError, "topic orders was not sent: its key, of type int, does not fit <Serde STRING>"),
    (lambda p: p.send_many(ORDERS, [(17, 1)]), SerializationError, "topic orders was not sent: its key, of type int"),
    (lambda p: p.send("no/name", "a", "b"), TopologyError, "'no/name' of send is not a valid topic name"),
    (lambda p: p.send(17, "a", "b"), TopologyError, "argument 'topic' of send is 17: give a Topic, or the name"),
    (lambda p: p.send("texts", "a", "b", key_serde=17), TopologyError, "argument 'key_serde' of send is 17"),
    (lambda p: p.send(Topic("none", str, str), "a", "b"), UnknownTopicOrPartition, "topic none does not exist, so no record was sent to it"),
    (lambda p: p.send_many(Topic("none", str, str), [("a", "b")]), UnknownTopicOrPartition, "topic none does not exist"),
    (too_large, RecordTooLarge, "texts-0 has 2000001 bytes, max.message.bytes is 1048588"),
]


@pytest.mark.parametrize(("call", "kind", "text"), WRONG)
@in_virtual_time
async def test_an_error_names_the_topic_and_the_remedy(
    call: Callable[[Publisher], Coroutine[Any, Any, object]], kind: type[KsActorsError], text: str
) -> None:
    """It is that of the call alone: the next one succeeds."""
    async with publishing() as (publisher, _):
        with pytest.raises(kind, match=text):
            await call(publisher)
        assert (await publisher.send(TEXTS, "a", "b")).offset == 0


@in_virtual_time
async def test_a_record_that_the_log_refuses_fails_alone() -> None:
    """Those of other calls in the same write are written, also if the log does not say which one is at fault."""
    async with publishing() as (publisher, log):
        await publisher.send(TEXTS, "a", "0")
        calls = [publisher.send(TEXTS, "a", text) for text in ("1", "x" * 2_000_000, "2")]
        first, second, third = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(second, RecordTooLarge)
        unnamed = ProduceFailed({TopicPartition("texts", 0): RecordTooLarge("one is too large", range(3))})
        log.inject("send", unnamed)
        more = await asyncio.gather(*(publisher.send(TEXTS, "a", text) for text in "345"), return_exceptions=True)
        assert not any(isinstance(each, BaseException) for each in (first, third, *more))
        assert [each.value for each in await all_of(publisher, TEXTS)] == list("012345")


@in_virtual_time
async def test_a_denied_topic_is_told_to_each_caller() -> None:
    """By the topic and the partition."""
    async with publishing() as (publisher, log):
        await publisher.send(TEXTS, "a", "0")
        log.inject("send", ProduceFailed({TopicPartition("texts", 0): NotAuthorized("the broker denies it")}))
        for error in await asyncio.gather(*(publisher.send(TEXTS, "a", text) for text in "12"), return_exceptions=True):
            assert isinstance(error, NotAuthorized)
            assert str(error) == "texts-0: the broker denies it"
        log.inject("describe_topics", NotAuthorized("the broker denies it"))
        with pytest.raises(NotAuthorized, match="denies"):
            await publisher.send(ORDERS, "a", Order(1))


@pytest.mark.parametrize("operation", ["describe_topics", "producer", "send"])
@in_virtual_time
async def test_a_log_that_does_not_answer_is_waited_for_until_the_deadline(operation: Any) -> None:
    """From the call on, whatever the record waits for; later ones are written when the log is back."""
    async with publishing(delivery_timeout_ms=5_000) as (publisher, log):
        held = log._faults.hold(operation)
        began = asyncio.get_running_loop().time()
        early = asyncio.ensure_future(publisher.send(TEXTS, "a", "early"))
        await asyncio.sleep(3)
        late = asyncio.ensure_future(publisher.send(TEXTS, "a", "late"))
        with pytest.raises(LogTimeout, match=r"within 5000 ms \(delivery_timeout_ms\)"):
            await early
        assert asyncio.get_running_loop().time() == pytest.approx(began + 5)
        held.set()
        await late
        assert (await all_of(publisher, TEXTS))[-1].value == "late"


@in_virtual_time
async def test_requests_without_an_answer_are_repeated() -> None:
    """The lookup of the topic, and the making of the producer."""
    async with publishing() as (publisher, log):
        for operation in ("describe_topics", "producer"):
            log.inject(operation, LogTimeout("away"), 3)
        assert (await publisher.send(TEXTS, "a", "b")).offset == 0


@in_virtual_time
async def test_a_cancelled_call_sends_nothing_if_its_write_has_not_begun() -> None:
    """Its room is given back; a write that has begun is finished."""
    async with publishing() as (publisher, log):
        await publisher.send(TEXTS, "a", "0")
        held = log._faults.hold("send")
        begun = asyncio.ensure_future(publisher.send(TEXTS, "a", "begun"))
        await asyncio.sleep(1)
        waiting = asyncio.ensure_future(publisher.send(TEXTS, "a", "waiting"))
        many = asyncio.ensure_future(publisher.send_many(TEXTS, [("a", "many")] * 10))
        last = asyncio.ensure_future(publisher.send(TEXTS, "a", "last"))
        await asyncio.sleep(1)
        for call in (begun, waiting, many):
            assert call.cancel()
        await asyncio.sleep(1)
        held.set()
        await last
        assert [each.value for each in await all_of(publisher, TEXTS)] == ["0", "begun", "last"]
        assert sender_of(publisher)._bytes == 0


def sender_of(publisher: Publisher) -> RecordSender:
    assert publisher._topics is not None
    return publisher._topics._sender


@in_virtual_time
async def test_calls_wait_while_too_much_is_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, until their deadline; what is read of an iterable waits, too."""
    monkeypatch.setattr(_sender, "_MOST", 1_000)
    async with publishing(delivery_timeout_ms=5_000) as (publisher, log):
        await publisher.send(TEXTS, "a", "0")
        sender = sender_of(publisher)
        held = log._faults.hold("send")
        large = asyncio.ensure_future(publisher.send(TEXTS, "a", "x" * 1_000))
        await asyncio.sleep(1)
        taken: list[int] = []

        def numbers() -> Any:
            for number in range(3_000):
                taken.append(number)
                yield "a", str(number)

        many = asyncio.ensure_future(publisher.send_many(TEXTS, numbers()))
        small = [asyncio.ensure_future(publisher.send(TEXTS, "a", text)) for text in "12"]
        await asyncio.sleep(1)
        assert (len(taken), len(sender._waiters)) == (1_000, 3)
        assert small[0].cancel()
        await asyncio.sleep(1)
        held.set()
        await asyncio.gather(large, many, small[1])
        assert (len(sender._waiters), sender._bytes) == (0, 0)
        held = log._faults.hold("send")
        blocked = asyncio.ensure_future(publisher.send(TEXTS, "a", "x" * 1_000))
        await asyncio.sleep(0)
        with pytest.raises(LogTimeout, match="MiB of earlier records were not acknowledged within 5000 ms"):
            await publisher.send(TEXTS, "a", "3")
        held.set()
        with pytest.raises(LogTimeout, match="texts-0 did not acknowledge"):
            await blocked


@in_virtual_time
async def test_a_close_waits_for_sent_records_and_refuses_others() -> None:
    """Those without an answer by `close_timeout_ms` fail; all later calls are refused."""
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("texts", 1)])
        publisher = Publisher({"close_timeout_ms": 4_000}, log=log)
        with pytest.raises(NotRunning, match="was not started"):
            await publisher.send(TEXTS, "a", "b")
        async with publisher:
            sent = [asyncio.ensure_future(publisher.send(TEXTS, "a", text)) for text in "bc"]
            await asyncio.sleep(0)
        assert [(await each).offset for each in sent] == [0, 1]
        for call in (publisher.send(TEXTS, "a", "b"), publisher.send_many(TEXTS, [("a", "b")]), publisher.create_topics({"new": 1})):
            with pytest.raises(NotRunning, match="the Publisher is closed"):
                await call
        with pytest.raises(NotRunning, match="make a new one"):
            await publisher.start()
        async with Publisher({"close_timeout_ms": 4_000}, log=log) as publisher:
            await publisher.send(TEXTS, "a", "d")
            log._faults.hold("send")
            lost = [asyncio.ensure_future(publisher.send(TEXTS, "a", text)) for text in "ef"]
            await asyncio.sleep(1)
            lost.append(asyncio.ensure_future(publisher.send(TEXTS, "a", "g")))
            await asyncio.sleep(0)
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() == pytest.approx(began + 4)
        for each in lost:
            with pytest.raises(NotRunning, match="closed before the log acknowledged"):
                await each


@in_virtual_time
async def test_topics_that_grow_or_come_again_are_noticed() -> None:
    """Added partitions after `metadata_max_age_ms`; a topic of the same name at the first refused record."""
    async with publishing(metadata_max_age_ms=60_000) as (publisher, log):
        await publisher.send(TEXTS, None, "a")
        await log.create_partitions({"texts": 3})
        assert {(await publisher.send(TEXTS, None, "a")).partition for _ in range(6)} == {0}
        await asyncio.sleep(61)
        await publisher.send(TEXTS, None, "a")
        assert {(await publisher.send(TEXTS, None, "a")).partition for _ in range(6)} == {0, 1, 2}
        await log.delete_topics(["texts"])
        with pytest.raises(UnknownTopicOrPartition, match="texts"):
            await publisher.send(TEXTS, None, "a")
        await publisher.create_topics({TEXTS: 1, "orders": 9})
        assert (await publisher.send(TEXTS, None, "a"))[:3] == ("texts", 0, 0)
        assert (await log.describe_topics(["orders"]))["orders"].partitions == 4


def test_a_publisher_is_of_one_log() -> None:
    """Named by servers, settings, a URL or a Log."""
    with pytest.raises(ConfigError, match="needs its Kafka or its log, and one of both"):
        Publisher()
    with pytest.raises(ConfigError, match="needs its Kafka or its log, and one of both"):
        Publisher("localhost:9092", log="memory://")
    assert repr(Publisher("localhost:9092")) == "<Publisher of kafka://localhost:9092>"
    config = StreamsConfig(application_id="loader", bootstrap_servers="a:1", security_protocol="SSL")
    assert repr(Publisher(config)) == "<Publisher of kafka://a:1>"
    assert repr(Publisher(log="memory://")) == "<Publisher of memory://>"


def test_a_call_on_another_loop_is_refused() -> None:
    """A program's other threads have ways of their own."""

    async def start() -> Publisher:
        publisher = Publisher(log="memory://")
        await publisher.start()
        return publisher

    publisher = asyncio.run(start())
    with pytest.raises(RuntimeError, match="the Publisher runs on another event loop"):
        asyncio.run(publisher.send(TEXTS, "a", "b"))
