"""The sending part of a producer, against a broker that answers at times that the test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from actors.testing import VirtualLoop
from ks_actors import Batch, LogClosed, LogError, LogTimeout, ProduceFailed, TransactionAborted
from ks_actors._errors import InvalidRecord, RecordTooLarge
from ks_actors.log import Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.admin import Admin
from ks_actors.log.kafka.client._client import KafkaClient
from ks_actors.log.kafka.client._connections import Unavailable
from ks_actors.log.kafka.producer._outcome import Outcome
from ks_actors.log.kafka.producer._partition_queue import Identity
from ks_actors.log.kafka.producer._send_call import SendCall
from ks_actors.log.kafka.producer._sender import EpochRefused, Sender
from ks_actors.log.kafka.wire import RecordBatch
from ks_actors.log.kafka.wire._batch_header import HEADER
from ks_actors.log.kafka.wire._batch_writer import Encoder
from ks_actors.log.kafka.wire._error_codes import NONE
from tests.ks_actors.log.helpers import batch
from tests.ks_actors.runtime.helpers import in_virtual_time

NOT_LEADER, INVALID_PRODUCER_EPOCH = 6, 47
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def answer(number: int, code: int, offset: int, records: Sequence[tuple[int, str | None]] = (), message: str | None = None) -> tuple[object, ...]:
    """The answer of a leader for a partition."""
    return number, code, offset, -1, 0, records, message


class Slow:
    """A cluster of one broker: of the second partition it knows after a while, and the first one refuses once, late."""

    def __init__(self) -> None:
        self.options = KafkaOptions()
        self.sent: list[list[int]] = []
        self._began = asyncio.get_running_loop().time()

    def leader(self, partition: TopicPartition) -> int | None:
        known = partition == FIRST or asyncio.get_running_loop().time() - self._began > 0.05
        return 1 if known else None

    async def refresh(self, topics: Iterable[str] = ()) -> None:
        """Find out nothing new."""

    async def send(self, _node: int, request: Any, **_: object) -> Any:
        (partitions,) = (numbers for _, numbers in request._topics)
        self.sent.append([number for number, _ in partitions])
        first = len(self.sent) == 1
        await asyncio.sleep(0.08 if first else 0.01)
        return SimpleNamespace(topics=[("t", [answer(number, NOT_LEADER if first else NONE, -1 if first else 7) for number, _ in partitions])])


class Refusing(Slow):
    """A cluster of one broker that gives the same answer to all, at once."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self._code = code

    async def send(self, _node: int, request: Any, **_: object) -> Any:
        (partitions,) = (numbers for _, numbers in request._topics)
        self.sent.append([number for number, _ in partitions])
        return SimpleNamespace(topics=[("t", [answer(number, self._code, -1) for number, _ in partitions])])


class Leaderless(Slow):
    """A cluster that for a while knows no leader, and that is to be asked without any pause."""

    def __init__(self) -> None:
        super().__init__()
        self.options = KafkaOptions(retry_backoff_ms=0, retry_backoff_max_ms=0, missing_topic_wait_ms=0)
        self.asked: int = 0

    def leader(self, partition: TopicPartition) -> int | None:
        return super().leader(SECOND if self.asked <= 1_000 else FIRST)

    def why_no_leader(self, partition: TopicPartition, *, since: float | None = None) -> Unavailable:
        return Unavailable(f"nobody leads {partition}")

    async def refresh(self, topics: Iterable[str] = ()) -> None:
        """Count."""
        self.asked += 1


def sending(client: Slow, *places: TopicPartition) -> tuple[Sender, list[Outcome]]:
    """Begin to send a record to each place, else to the first one."""
    encoder = Encoder(client.options, transactional=False)
    sender = Sender(cast("KafkaClient", client), encoder)
    sender.reset(Identity(1, 0))
    records = batch(b"a")
    futures = [future for where in places or (FIRST,) for future in sender.put(where, encoder.encode(records, 1_000), records, sender.deadline)]
    sender.go()
    return sender, futures


@in_virtual_time
async def test_a_leader_that_nobody_knows_is_not_asked_for_without_any_pause() -> None:
    """Where settings name none, there is one of a millisecond; the records go out once there is a leader."""
    client = Leaderless()
    sender, (future,) = sending(client)
    async with asyncio.timeout(5):
        await sender.wait_for([future])
    assert future.result() == 8
    assert 0 < client.asked <= 100


@in_virtual_time
async def test_a_partition_that_has_no_leader_for_long_is_looked_up_ever_more_rarely() -> None:
    """Each producer asks the brokers that are left, which have more to do than usual: ten times a second at first, then once."""

    class LeaderlessForLong(Leaderless):
        def __init__(self) -> None:
            super().__init__()
            self.options = KafkaOptions()
            self.at: list[float] = []

        def leader(self, partition: TopicPartition) -> int | None:
            return None if asyncio.get_running_loop().time() - self._began < 120 else 1

        async def refresh(self, topics: Iterable[str] = ()) -> None:
            self.at.append(asyncio.get_running_loop().time() - self._began)

    client = LeaderlessForLong()
    sender, (future,) = sending(client)
    await sender.wait_for([future])
    assert future.result() == 8
    assert asyncio.get_running_loop().time() - client._began <= 122
    assert len([at for at in client.at if at < 2]) >= 10
    assert len([at for at in client.at if at >= 10]) <= 112


def test_a_wait_that_is_over_at_once_takes_the_next_one_on_uvloop() -> None:
    """uvloop returns a handle that is no timer for a time that has come; the sender asks it nothing, and goes on."""
    uvloop = pytest.importorskip("uvloop")

    async def test() -> None:
        client = Slow()
        sender, (future,) = sending(client, SECOND)
        for delay in (0.0001, 0.0, 0.0002):
            sender._wake_in(delay)
        async with asyncio.timeout(5):
            await sender.wait_for([future])
        assert future.result() == 8

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


@in_virtual_time
async def test_a_partition_that_waits_is_not_forgotten_for_another_one() -> None:
    """The timer of one partition comes before the other may be tried again, and finds it not due yet: it is tried when it is."""
    client = Slow()
    sender, futures = sending(client, FIRST, SECOND)
    async with asyncio.timeout(5):
        await sender.wait_for(futures)
    assert [future.result() for future in futures] == [8, 8]
    assert client.sent == [[0], [1], [0]]


@in_virtual_time
async def test_batches_behind_one_that_voided_the_transaction_fail_at_once() -> None:
    """Nobody waits for it until its time is over: a commit waits for all of its transaction. With a new identity the partition is good again."""
    client = Refusing(INVALID_PRODUCER_EPOCH)
    encoder = Encoder(client.options, transactional=True)
    sender = Sender(cast("KafkaClient", client), encoder, transactional_id="id")
    sender.reset(Identity(1, 0))
    records = batch(b"a")
    (first,) = sender.put(FIRST, encoder.encode(records, 1_000), records, sender.deadline)
    sender.go()
    await sender.wait_for([first])
    assert isinstance(first.exception(), EpochRefused)
    (second,) = sender.put(FIRST, encoder.encode(records, 1_000), records, sender.deadline)
    assert isinstance(second.exception(), TransactionAborted)
    sender.go()
    assert len(client.sent) == 1
    sender.reset(Identity(1, 1))
    (third,) = sender.put(FIRST, encoder.encode(records, 1_000), records, sender.deadline)
    sender.go()
    await sender.wait_for([third])
    assert len(client.sent) == 2


class Answering(Slow):
    """A cluster of one broker that gives these answers one after the other, then takes all; `identities` are those that the batches had."""

    def __init__(self, *answers: tuple[object, ...]) -> None:
        super().__init__()
        self._answers = list(answers)
        self.identities: list[Identity] = []
        self.counts: list[int] = []

    async def send(self, _node: int, request: Any, **_: object) -> Any:
        (partitions,) = (numbers for _, numbers in request._topics)
        self.sent.append([number for number, _ in partitions])
        for _, raw in partitions:
            self.identities.append(Identity(*HEADER.unpack_from(raw)[9:11]))
            self.counts.append(HEADER.unpack_from(raw)[12])
        await asyncio.sleep(0.01)
        return SimpleNamespace(
            topics=[("t", [(number, *(self._answers.pop(0) if self._answers else (NONE, 7, -1, 0, [], None))) for number, _ in partitions])]
        )


def refusal(code: int, *records: tuple[int, str | None], message: str | None = None) -> tuple[object, ...]:
    return answer(0, code, -1, records, message)[1:]


async def outcome(client: Answering, *values: bytes, transactional: bool = False, parts: int = 1) -> BaseException | None:
    """Send the values in this many batches of one call, and return how that ends for the partition."""
    failed = await failure(client, *values, transactional=transactional, parts=parts)
    return None if failed is None else failed.errors[FIRST]


async def failure(client: Answering, *values: bytes, transactional: bool = False, parts: int = 1) -> ProduceFailed | None:
    """Send the values in this many batches of one call, and return how that ends."""
    encoder = Encoder(client.options, transactional=transactional)
    sender = Sender(cast("KafkaClient", client), encoder, transactional_id="id" if transactional else None)
    sender.reset(Identity(1, 0))
    share = len(values) // parts
    call = SendCall(cast("Admin", KnownLimits()), [Outgoing(FIRST, batch(*values[share * part : share * (part + 1)])) for part in range(parts)])
    await call.encode(encoder)
    async with asyncio.timeout(60):
        await sender.wait_for(call.put(sender))
    list(call.take_errors())
    try:
        await call.result()
    except ProduceFailed as error:
        return error
    return None


class KnownLimits:
    """The part of an admin that a call asks."""

    def known_limit(self, _: str) -> int:
        return 1_000

    limit = known_limit


@pytest.mark.parametrize("code", [32, 87])
@pytest.mark.parametrize("transactional", [False, True])
@in_virtual_time
async def test_a_refusal_names_the_records_that_the_broker_names(code: int, transactional: bool) -> None:
    """Its error has their numbers, counted through all batches of the call, and the broker's own words instead of a guess (KIP-467)."""
    client = Answering(answer(0, NONE, 7)[1:], refusal(code, (1, "no key"), (2, "no key"), message="rejected"))
    error = await outcome(client, *[b"v"] * 8, transactional=transactional, parts=2)
    assert isinstance(error, InvalidRecord)
    assert error.records == {5, 6}
    assert "rejected; no key" in str(error)
    assert "compacted topic takes no records" not in str(error)


@pytest.mark.parametrize(("refused", "written"), [(0, 0), (1, 4), (2, 8)])
@in_virtual_time
async def test_a_failure_counts_the_records_that_were_written_before_it(refused: int, written: int) -> None:
    """From the first of the call on: those behind the refused batch are left out, though they are written, too."""
    answers = [refusal(87, (1, "no key")) if part == refused else answer(0, NONE, part)[1:] for part in range(3)]
    failed = await failure(Answering(*answers), *[b"v"] * 12, parts=3)
    assert failed is not None
    assert failed.written == ({FIRST: written} if written else {})


def test_a_call_that_is_refused_before_it_is_sent_has_written_nothing() -> None:
    """To one of its partitions, or to all: a topic that there is not, say."""
    other = TopicPartition(FIRST.topic, 1)
    call = SendCall(cast("Admin", None), [Outgoing(partition, batch(b"v")) for partition in (FIRST, other)])
    call._encoded = [[], []]
    call.refuse({FIRST: InvalidRecord("no", [])})
    assert call._written() == {}
    call._encoded = [[cast("RecordBatch", None)], [cast("RecordBatch", None)]]
    call._outcomes = [[], []]
    assert call._written() == {}


@in_virtual_time
async def test_a_refusal_without_names_is_about_its_own_batch_only() -> None:
    """A broker that names no record means the batch that it refuses, and not the others of the call."""
    error = await outcome(Answering(answer(0, NONE, 7)[1:], refusal(87)), *[b"v"] * 8, parts=2)
    assert isinstance(error, InvalidRecord)
    assert error.records == {4, 5, 6, 7}
    assert "a compacted topic takes no records without keys" in str(error)


@pytest.mark.parametrize("code", [10, 18])
@in_virtual_time
async def test_a_batch_that_is_too_large_for_its_topic_or_a_segment_is_split(code: int) -> None:
    """Its halves are sent; a record that is too large alone is named by its place in the call."""
    client = Answering(refusal(code))
    assert await outcome(client, *[b"v"] * 4) is None
    assert client.counts == [4, 2, 2]
    client = Answering(refusal(code), refusal(code), refusal(code))
    error = await outcome(client, *[b"v"] * 4, transactional=True)
    assert isinstance(error, RecordTooLarge)
    assert error.records == {0}


@in_virtual_time
async def test_a_record_that_is_larger_alone_than_with_another_one_is_sent_alone() -> None:
    """zstd takes other parameters above 256 KiB, so the part of a split batch may be larger than the batch: the broker decides about it."""
    encoder = Encoder(KafkaOptions(compression="zstd"), transactional=False)
    random = Random(5)
    words = [b"%x " % random.getrandbits(random.choice([12, 20, 28])) for _ in range(3_000)]

    def text(size: int) -> bytes:
        return b"".join(random.choices(words, k=size // 3))[:size]

    def size(records: Batch) -> int:
        return sum(one.size for one in encoder.encode(records, 1 << 20))

    tries = (batch(text(262_100), text(40)) for _ in range(100))
    records = next(both for both in tries if size(both.slice(0, 1)) >= size(both))
    client = Answering(refusal(10))
    sender = Sender(cast("KafkaClient", client), encoder)
    sender.reset(Identity(1, 0))
    (future,) = sender.put(FIRST, encoder.encode(records, 1 << 20), records, sender.deadline)
    sender.go()
    async with asyncio.timeout(5):
        await sender.wait_for([future])
    assert future.result() == 8
    assert client.counts == [2, 1, 1]


@in_virtual_time
async def test_a_batch_whose_answer_cannot_be_handled_fails() -> None:
    """No caller waits for it forever, and the next batch is written."""
    client = Answering((87, -1, -1, 0, None, "no list of records"))
    error = await outcome(client, b"v")
    assert isinstance(error, LogError)
    assert "sending records for t-0 failed: TypeError" in str(error)
    assert await outcome(client, b"v") is None


@pytest.mark.parametrize("code", [45, 59])
@in_virtual_time
async def test_records_that_a_leader_cannot_place_go_out_by_the_next_epoch(code: int) -> None:
    """A leader that has lost acknowledged records, or its knowledge of the producer, has not written them: they are sent again."""
    client = Answering(refusal(code))
    assert await outcome(client, b"v") is None
    assert client.identities == [Identity(1, 0), Identity(1, 1)]


@pytest.mark.parametrize("code", [45, 59])
@in_virtual_time
async def test_a_leader_that_cannot_place_records_voids_their_transaction(code: int) -> None:
    """It is done again from the last commit, as by Kafka Streams, and no handler drops its records."""
    assert isinstance(await outcome(Answering(refusal(code)), b"v", transactional=True), TransactionAborted)


@in_virtual_time
async def test_long_repetitions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """With the partition and the reason, every ten seconds; in the end it fails by both."""
    client = Refusing(NOT_LEADER)
    sender, (future,) = sending(client)
    await asyncio.sleep(9)
    assert caplog.text == ""
    await asyncio.sleep(3)
    assert "records for t-0 are not written yet after 10 s; the producer retries: its leader answered NOT_LEADER" in caplog.text
    await sender.wait_for([future])
    assert isinstance(future.exception(), LogTimeout)


def test_an_outage_of_many_partitions_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """It names some of them; the reason is told once, not with each partition."""

    async def test() -> None:
        sender, futures = sending(Refusing(NOT_LEADER), *(TopicPartition("t", number) for number in range(60)))
        await asyncio.sleep(12)
        (told,) = caplog.messages
        assert told == (
            "records for 60 partitions, such as t-0, t-1, t-2, are not written yet after 10 s; "
            "the producer retries: its leader answered NOT_LEADER_OR_FOLLOWER"
        )
        await sender.close(LogClosed("closed"))
        await sender.wait_for(futures)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(test())
