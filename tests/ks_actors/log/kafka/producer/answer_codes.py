"""A table of the error codes that brokers may answer to a producer, and of what it does then; and a run that finds out.

The codes of a request are those that the classes of Kafka 4.4's brokers name on the way of its answer in the version that is sent here, and a few
that older brokers give (5, 13, 46, 59, 120). `kafka` says what Kafka's own producer does: it repeats, splits the batch, goes on with the next epoch,
has the transaction aborted, or cannot be used any more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from ks_actors._errors import LogError, ProduceFailed
from ks_actors.log import GroupMetadata, OffsetAndMetadata, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.admin import Admin
from ks_actors.log.kafka.producer import KafkaProducer
from tests.ks_actors.log.helpers import batch
from tests.ks_actors.log.kafka.producer.modelled import Cluster
from tests.ks_actors.log.kafka.transactions.transaction_run import GROUP, transactional

if TYPE_CHECKING:
    from ks_actors.log.kafka.transactions import KafkaTransactionalProducer

PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
IDEMPOTENT, TRANSACTIONAL = "Produce", "Produce in a transaction"
START, NEW_ID = "InitProducerId of a transactional id", "InitProducerId"
COMMIT, ABORT = "EndTxn to commit", "EndTxn to abort"
_ALL: Final = range(-1, 137)


class Row(NamedTuple):
    """`outcome` is "repeated", "split", "next epoch", "found" (it was written), or the name of the error of the call."""

    request: str
    codes: tuple[int, ...]
    kafka: str
    outcome: str


TABLE: Final = (
    Row(IDEMPOTENT, (2, 3, 5, 6, 7, 13, 19, 20, 56), "repeats", "repeated"),
    Row(IDEMPOTENT, (10,), "splits", "split"),
    # The batch is larger than a segment.
    Row(IDEMPOTENT, (18,), "fails", "split"),
    Row(IDEMPOTENT, (45, 59), "next epoch", "next epoch"),
    # Kafka's has no offset for it.
    Row(IDEMPOTENT, (46,), "succeeds", "found"),
    Row(IDEMPOTENT, (32, 87), "fails", "InvalidRecord"),
    Row(IDEMPOTENT, (29, 31), "fails", "NotAuthorized"),
    Row(IDEMPOTENT, (-1, 17, 35, 42, 43, 76), "fails", "LogError"),
    Row(TRANSACTIONAL, (2, 3, 5, 6, 7, 13, 19, 20, 56), "repeats", "repeated"),
    Row(TRANSACTIONAL, (10,), "splits", "split"),
    Row(TRANSACTIONAL, (18,), "aborts", "split"),
    Row(TRANSACTIONAL, (46,), "succeeds", "found"),
    # The coordinator has this producer's epoch yet, so it has no rival; otherwise it is Fenced.
    Row(TRANSACTIONAL, (45, 47, 48, 49, 59, 90, 120), "aborts", "TransactionAborted"),
    Row(TRANSACTIONAL, (32, 87), "aborts", "InvalidRecord"),
    Row(TRANSACTIONAL, (29, 53), "ends", "NotAuthorized"),
    Row(TRANSACTIONAL, (-1, 17, 35, 42, 43, 76), "aborts", "LogError"),
    Row(NEW_ID, (14, 15, 16), "repeats", "repeated"),
    Row(NEW_ID, (31,), "ends", "NotAuthorized"),
    Row(NEW_ID, (-1, 35, 42), "ends", "LogError"),
    Row(START, (14, 15, 16, 51), "repeats", "repeated"),
    # Others may have taken the id at the same moment: it is tried three times.
    Row(START, (47, 49, 90), "ends", "repeated"),
    Row(START, (31, 53), "ends", "NotAuthorized"),
    Row(START, (48, 120), "ends", "TransactionAborted"),
    Row(START, (-1, 35, 42, 50), "ends", "LogError"),
    Row("AddPartitionsToTxn", (3, 14, 15, 16, 51), "repeats", "repeated"),
    # Brokers give it beside another code alone, and then it is repeated.
    Row("AddPartitionsToTxn", (55,), "aborts", "TransactionAborted"),
    Row("AddPartitionsToTxn", (29,), "aborts", "NotAuthorized"),
    Row("AddPartitionsToTxn", (53,), "ends", "NotAuthorized"),
    Row("AddPartitionsToTxn", (47, 90), "ends", "TransactionAborted"),
    Row("AddPartitionsToTxn", (49, 120), "aborts", "TransactionAborted"),
    Row("AddPartitionsToTxn", (48,), "ends", "TransactionAborted"),
    Row("AddPartitionsToTxn", (-1, 42, 59), "aborts", "LogError"),
    Row("AddOffsetsToTxn", (14, 15, 16, 51), "repeats", "repeated"),
    Row("AddOffsetsToTxn", (30,), "aborts", "NotAuthorized"),
    Row("AddOffsetsToTxn", (53,), "ends", "NotAuthorized"),
    Row("AddOffsetsToTxn", (47, 48, 90), "ends", "TransactionAborted"),
    Row("AddOffsetsToTxn", (49, 120), "aborts", "TransactionAborted"),
    Row("AddOffsetsToTxn", (-1, 42, 59), "ends", "LogError"),
    Row("TxnOffsetCommit", (3, 7, 14, 15, 16, 51), "repeats", "repeated"),
    Row("TxnOffsetCommit", (22, 25, 82), "aborts", "IllegalGeneration"),
    # The coordinator's group is about to change: its members join anew.
    Row("TxnOffsetCommit", (27,), "ends", "IllegalGeneration"),
    Row("TxnOffsetCommit", (30,), "aborts", "NotAuthorized"),
    Row("TxnOffsetCommit", (29, 53), "ends", "NotAuthorized"),
    Row("TxnOffsetCommit", (47, 48, 49, 90, 120), "ends", "TransactionAborted"),
    Row("TxnOffsetCommit", (-1, 12, 24, 28, 42, 43, 113), "ends", "LogError"),
    Row(COMMIT, (14, 15, 16, 51), "repeats", "repeated"),
    Row(COMMIT, (49, 120), "aborts", "TransactionAborted"),
    Row(COMMIT, (47, 48, 90), "ends", "TransactionAborted"),
    Row(COMMIT, (53,), "ends", "NotAuthorized"),
    Row(COMMIT, (-1, 42, 59), "ends", "LogError"),
    # What the coordinator does not end is ended by a new epoch.
    Row(ABORT, (14, 15, 16, 51), "repeats", "repeated"),
    Row(ABORT, (-1, 42, 47, 48, 49, 59, 90, 120), "ends", "repeated"),
    Row(ABORT, (53,), "ends", "NotAuthorized"),
    # Whether readers see the end is asked until it is known.
    Row("DescribeTransactions", (-1, 14, 15, 16, 42, 53, 105), "does not ask", "repeated"),
    Row("FindCoordinator", (14, 15, 16), "repeats", "repeated"),
    Row("FindCoordinator", (30, 53), "ends", "NotAuthorized"),
    Row("FindCoordinator", (-1, 42), "ends", "LogError"),
)  # fmt: skip
REQUESTS: Final = tuple(dict.fromkeys(row.request for row in TABLE))


def others(request: str) -> set[int]:
    """Return Kafka's codes that the table does not have for a request."""
    return {code for code in _ALL if code} - {code for row in TABLE if row.request == request for code in row.codes}


async def outcome_of(request: str, code: int) -> str:
    """Have a broker answer a request with a code, once. Raises an error unless the producer goes on afterwards."""
    cluster = Cluster([PLACE, OTHER])
    name = request.split(maxsplit=1)[0]
    if name == "InitProducerId":
        cluster.codes[name] += [code]
        return await (_started(cluster) if request == START else _idempotent(cluster))
    if request == IDEMPOTENT:
        return await _idempotent(cluster, code)
    producer = await transactional(cluster, KafkaOptions())
    await producer.send([Outgoing(PLACE, batch(b"a"))])
    cluster.codes[name] += [code]
    outcome = await _result(cluster, producer, request)
    cluster.codes.clear()
    # Needless where the call has committed or aborted.
    await producer.abort()
    await producer.send([Outgoing(PLACE, batch(b"z"))])
    await producer.commit({}, GroupMetadata("", -1, ""))
    await cluster.rest()
    seen = cluster.partitions[PLACE].values()
    assert seen[-1] == b"z"
    assert (b"a" in seen) is (outcome in {"repeated", "split", "found"} and request != ABORT), f"{outcome}, and readers see {seen}"
    return outcome


async def _result(cluster: Cluster, producer: KafkaTransactionalProducer, request: str) -> str:
    before = len(cluster.partitions[PLACE].entries), cluster.requests.count("Produce")
    try:
        if request == ABORT:
            await producer.abort()
            return "repeated"
        if request == TRANSACTIONAL:
            await producer.send([Outgoing(PLACE, batch(b"b", b"c"))])
        elif request == "AddPartitionsToTxn":
            await producer.send([Outgoing(OTHER, batch(b"b"))])
        offsets = {} if request == COMMIT else {PLACE: OffsetAndMetadata(1)}
        await producer.commit(offsets, GroupMetadata(GROUP, -1, ""))
    except ProduceFailed as failed:
        (error,) = failed.errors.values()
        return _name(error)
    except LogError as error:
        return _name(error)
    return _manner(cluster, *before, request)


async def _started(cluster: Cluster) -> str:
    try:
        producer = await transactional(cluster, KafkaOptions())
    except LogError as error:
        return _name(error)
    await producer.close()
    return "repeated"


async def _idempotent(cluster: Cluster, code: int | None = None) -> str:
    client = cluster.connect(KafkaOptions())
    producer = KafkaProducer(client, Admin(client), "p", lambda _: None)
    try:
        await producer.start()
        cluster.codes["Produce"] += [] if code is None else [code]
        await producer.send([Outgoing(PLACE, batch(b"b", b"c"))])
        outcome = "repeated" if code is None else _manner(cluster, 0, 0, IDEMPOTENT)
    except ProduceFailed as failed:
        outcome = _name(failed.errors[PLACE])
    except LogError as error:
        return _name(error)
    async with asyncio.timeout(5):
        await producer.send([Outgoing(PLACE, batch(b"z"))])
    await producer.close()
    return outcome


def _name(error: Exception) -> str:
    return next(each.__name__ for each in type(error).__mro__ if not each.__name__.startswith("_"))


def _manner(cluster: Cluster, entries: int, requests: int, request: str) -> str:
    """Return how records came to be written behind so many batches and requests."""
    written = [entry for entry in cluster.partitions[PLACE].entries[entries:] if entry.values]
    if request not in {IDEMPOTENT, TRANSACTIONAL}:
        return "repeated"
    if written[0].writer.epoch and request == IDEMPOTENT:
        return "next epoch"
    return "split" if len(written) > 1 else "found" if cluster.requests.count("Produce") == requests + 1 else "repeated"
