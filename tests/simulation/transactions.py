"""Coordinators of transactions: who may write under a transactional id, what belongs to its transaction, and how that ends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ks_actors.records import TopicPartition
from tests.simulation.broker import UNKNOWN_TOPIC, answers
from tests.simulation.cluster import TRANSACTIONS_TOPIC
from tests.simulation.coordinators import Shard, shard_of, write

if TYPE_CHECKING:
    from tests.simulation.broker import Broker, Call
    from tests.simulation.cluster import Cluster

_INVALID_REQUEST: Final = 42
_INVALID_PRODUCER_EPOCH: Final = 47
INVALID_STATE: Final = 48
_INVALID_MAPPING: Final = 49
_INVALID_TIMEOUT: Final = 50
_CONCURRENT: Final = 51
_NOT_ATTEMPTED: Final = 55
_FENCED: Final = 90
_NOT_FOUND: Final = 105
_NOT_ENOUGH_REPLICAS: Final = 19
_NOBODY: Final = -1
_LONGEST_MS: Final = 900_000
_LAST_EPOCH: Final = (1 << 15) - 2
_TIME: Final = 1_700_000_000_000


@dataclass
class Transactional:
    """A transactional id: its producer, and its transaction. `groups` has the offsets' groups, `partitions` what else is in it."""

    name: str
    producer: int
    timeout_ms: int
    epoch: int = _NOBODY
    last_producer: int = _NOBODY
    last_epoch: int = _NOBODY
    # The only one that knows the last epoch: a coordinator that reads its log does not find it there (TransactionLog.readTxnRecordValue).
    last_known_by: Shard | None = None
    state: str = "Empty"
    started: float = 0.0
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    groups: dict[str, None] = field(default_factory=dict)
    # Counts the transactions, so that a timeout ends its own.
    number: int = 0


def _known(cluster: Cluster) -> dict[str, Transactional]:
    return cluster.transactional


def verify(cluster: Cluster, name: str | None, partition: TopicPartition, producer: int, epoch: int) -> int:
    """Return the error code for a batch in a transaction, as the leader gets it from the coordinator (KIP-890)."""
    one = _known(cluster).get(name or "")
    if not cluster.sure and cluster.random.random() < 0.01:
        # The coordinator could not be asked.
        return _NOT_ENOUGH_REPLICAS
    if one is None or one.producer != producer:
        return _INVALID_MAPPING
    if one.epoch != epoch:
        return _INVALID_PRODUCER_EPOCH
    return 0 if one.state == "Ongoing" and partition in one.partitions else INVALID_STATE


def verify_offsets(cluster: Cluster, name: str | None, group: str, producer: int, epoch: int) -> int:
    """Return the error code for offsets in a transaction, as the group's coordinator gets it from the transaction's."""
    one = _known(cluster).get(name or "")
    if one is None or one.producer != producer:
        return _INVALID_MAPPING
    if one.epoch != epoch:
        return _INVALID_PRODUCER_EPOCH
    return 0 if one.state == "Ongoing" and group in one.groups else INVALID_STATE


def _shard(broker: Broker, name: str) -> tuple[int, Shard | None]:
    code = broker.cluster.injected("transaction")
    return (code, None) if code else shard_of(broker, TRANSACTIONS_TOPIC, name)


# --- producer ids ---------------------------------------------------------------------------------------------------------------------------


@answers("InitProducerId")
async def init_producer_id(broker: Broker, call: Call) -> dict[str, Any]:
    """Answer with a producer's id and epoch; whoever had the transactional id before may write no more."""
    fields, cluster = call.fields, broker.cluster
    name = fields["transactional_id"]
    if (fields["producer_id"] == _NOBODY) != (fields["producer_epoch"] == _NOBODY):
        return {"error_code": _INVALID_REQUEST, "producer_id": _NOBODY, "producer_epoch": _NOBODY}
    if name is None:
        code = cluster.injected("InitProducerId")
        if code:
            return {"error_code": code, "producer_id": _NOBODY, "producer_epoch": _NOBODY}
        cluster.producer_ids += 1
        return {"producer_id": cluster.producer_ids, "producer_epoch": 0}
    code, producer, epoch = await _begin(broker, name, fields)
    return {"error_code": code, "producer_id": producer, "producer_epoch": epoch}


async def _begin(broker: Broker, name: str, fields: dict[str, Any]) -> tuple[int, int, int]:  # noqa: PLR0911 - each is a case of its own
    refused = _NOBODY, _NOBODY
    timeout_ms = fields["transaction_timeout_ms"]
    if not name:
        return _INVALID_REQUEST, *refused
    if not 0 < timeout_ms <= _LONGEST_MS:
        return _INVALID_TIMEOUT, *refused
    code, shard = _shard(broker, name)
    if shard is None:
        return code, *refused
    cluster, known = broker.cluster, _known(broker.cluster)
    one = known.get(name)
    if one is None:
        cluster.producer_ids += 1
        one = Transactional(name, cluster.producer_ids, timeout_ms)
    if name in shard.busy or one.state.startswith("Prepare"):
        return _CONCURRENT, *refused
    producer, epoch = fields["producer_id"], fields["producer_epoch"]
    if _NOBODY not in (producer, one.epoch) and producer not in (one.producer, one.last_producer):
        return _FENCED, *refused
    if one.state == "Ongoing":
        return await _fence(broker, shard, one), *refused
    if one.last_known_by is not shard:
        one.last_epoch = _NOBODY
    found = _next(cluster, one, producer, epoch)
    if found is None:
        return _FENCED, *refused

    def change() -> None:
        known[name] = one
        one.producer, one.epoch, one.last_producer, one.last_epoch = found
        one.last_known_by = shard
        one.state, one.timeout_ms = "Empty", timeout_ms
        one.partitions.clear()
        one.groups.clear()

    code = await _write(broker, shard, name, change)
    return (code, *refused) if code else (0, found[0], found[1])


def _next(cluster: Cluster, one: Transactional, producer: int, epoch: int) -> tuple[int, int, int, int] | None:
    """Return the next producer id and epoch, and those before; None if another producer has got an epoch since `epoch`."""
    if _NOBODY not in (producer, one.epoch) and (producer, epoch) != (one.producer, one.epoch):
        if (producer, epoch) == (one.last_producer if one.last_producer != _NOBODY else one.producer, one.last_epoch):
            # Asked again, as the answer was lost.
            return one.producer, one.epoch, one.last_producer, one.last_epoch
        return None
    if one.epoch >= _LAST_EPOCH:
        cluster.producer_ids += 1
        return cluster.producer_ids, 0, one.producer, epoch
    return one.producer, one.epoch + 1, _NOBODY, epoch if producer != _NOBODY else _NOBODY


async def _write(broker: Broker, shard: Shard, name: str, change: Any) -> int:
    shard.busy.add(name)
    try:
        return await write(broker, shard, change)
    finally:
        shard.busy.discard(name)


async def _fence(broker: Broker, shard: Shard, one: Transactional) -> int:
    """Abort the transaction of a producer that is to write no more."""

    return await _write(broker, shard, one.name, lambda: _abort(broker.cluster, one, shard)) or _CONCURRENT


def _abort(cluster: Cluster, one: Transactional, shard: Shard) -> None:
    """Abort a transaction, under an epoch that its producer gets if it asks for the next one.

    In transaction version 1, and with Kafka 4.0.0, which adds two, it is refused then, and has to ask for the one after it
    (TransactionCoordinator.endTransaction forgets the epoch before; KAFKA-19367).
    """
    if one.state == "Ongoing":
        added, continued = cluster.fencing
        one.last_epoch, one.epoch = one.epoch if continued else _NOBODY, one.epoch + added
        one.last_known_by = shard
        _decide(cluster, one, "Abort")


# --- what belongs to a transaction ----------------------------------------------------------------------------------------------------------


def _judge(one: Transactional | None, fields: dict[str, Any]) -> int:
    if one is None or one.producer != fields["producer_id"]:
        return _INVALID_MAPPING
    return 0 if one.epoch == fields["producer_epoch"] else _INVALID_PRODUCER_EPOCH


async def _add(broker: Broker, fields: dict[str, Any], partitions: list[TopicPartition], groups: list[str]) -> int:
    name = fields["transactional_id"]
    code, shard = _shard(broker, name)
    if shard is None:
        return code
    one = _known(broker.cluster).get(name)
    code = _judge(one, fields)
    if code or one is None:
        return code
    if name in shard.busy or one.state.startswith("Prepare"):
        return _CONCURRENT
    if one.state == "Ongoing" and all(each in one.partitions for each in partitions) and all(each in one.groups for each in groups):
        return 0

    def change() -> None:
        if one.state != "Ongoing":
            one.state, one.started = "Ongoing", asyncio.get_running_loop().time()
            one.partitions.clear()
            one.groups.clear()
            one.number += 1
        one.partitions |= dict.fromkeys(partitions)
        one.groups |= dict.fromkeys(groups)

    return await _write(broker, shard, name, change)


@answers("AddPartitionsToTxn")
async def add_partitions(broker: Broker, call: Call) -> dict[str, Any]:
    """Take partitions into a transaction: all of them, or none."""
    fields = call.fields
    named = [TopicPartition(topic["name"], number) for topic in fields["topics"] for number in topic["partitions"]]
    unknown = {each for each in named if broker.judge(each) == UNKNOWN_TOPIC}
    code = 0 if unknown else await _add(broker, fields, named, [])

    def code_of(partition: TopicPartition) -> int:
        return UNKNOWN_TOPIC if partition in unknown else _NOT_ATTEMPTED if unknown else code

    return {
        "results": [
            {
                "name": topic["name"],
                "results": [{"partition": each, "error_code": code_of(TopicPartition(topic["name"], each))} for each in topic["partitions"]],
            }
            for topic in fields["topics"]
        ]
    }


@answers("AddOffsetsToTxn")
async def add_offsets(broker: Broker, call: Call) -> dict[str, Any]:
    """Take the offsets of a group into a transaction."""
    return {"error_code": await _add(broker, call.fields, [], [call.fields["group_id"]])}


# --- ends -----------------------------------------------------------------------------------------------------------------------------------


@answers("EndTxn")
async def end_transaction(broker: Broker, call: Call) -> dict[str, Any]:
    """Decide a transaction; its markers are written afterwards."""
    return {"error_code": await _end(broker, call.fields)}


async def _end(broker: Broker, fields: dict[str, Any]) -> int:
    name = fields["transactional_id"]
    code, shard = _shard(broker, name)
    if shard is None:
        return code
    one = _known(broker.cluster).get(name)
    code = _judge(one, fields)
    if code or one is None:
        return code
    how = "Commit" if fields["committed"] else "Abort"
    if name in shard.busy or one.state == f"Prepare{how}":
        return _CONCURRENT
    if one.state != "Ongoing":
        return 0 if one.state == f"Complete{how}" else INVALID_STATE
    decided = one
    return await _write(broker, shard, name, lambda: _decide(broker.cluster, decided, how))


def _decide(cluster: Cluster, one: Transactional, how: str) -> None:
    if one.state == "Ongoing":
        one.state = f"Prepare{how}"
        cluster.trace.note("decides", one.name, how, one.producer, one.epoch)
        cluster.begin(_complete(cluster, one, how))


async def _complete(cluster: Cluster, one: Transactional, how: str) -> None:
    """Write the markers, each until it is written, and tell the groups."""
    producer, epoch = one.producer, one.epoch
    commit = how == "Commit"
    for partition in tuple(one.partitions):
        await asyncio.sleep(cluster.manners.replication * cluster.random.random())
        while not await _mark(cluster, partition, producer, epoch, commit=commit):
            await asyncio.sleep(0.05)
    for group in tuple(one.groups):
        await _until_coordinated(cluster, one.name)
        cluster.offsets_of(group).end_transaction(producer, commit=commit)
    await _until_coordinated(cluster, one.name)
    one.state = f"Complete{how}"
    one.partitions.clear()
    one.groups.clear()
    cluster.trace.note("completes", one.name, how)


async def _mark(cluster: Cluster, name: TopicPartition, producer: int, epoch: int, *, commit: bool) -> bool:
    """Write the marker of a partition; tell whether the replicas have it."""
    partition = cluster.partition(name)
    if partition is None:
        return True
    leader = cluster.brokers.get(partition.leader)
    if leader is None or not leader.connected or name not in leader.led or leader.led[name].log is not partition.log:
        return False
    log = partition.log
    marker = log.end_transaction(producer, epoch, partition.epoch, _TIME, commit=commit)
    cluster.replicate(partition)
    log.wake()
    while log.high < marker.behind:
        await asyncio.sleep(0.01)
        if partition.log is not log:
            return cluster.partition(name) is not partition
    return True


async def _until_coordinated(cluster: Cluster, name: str) -> None:
    """Wait until some broker speaks for a transactional id."""
    while all(not broker.connected or shard_of(broker, TRANSACTIONS_TOPIC, name)[1] is None for broker in cluster.brokers.values()):
        await asyncio.sleep(0.05)


async def expire(cluster: Cluster) -> None:
    """Abort the transactions that have been open for too long, without end."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(cluster.manners.transaction_look)
        for one in tuple(_known(cluster).values()):
            if one.state != "Ongoing" or loop.time() < one.started + one.timeout_ms / 1000:
                continue
            for broker in cluster.brokers.values():
                _, shard = shard_of(broker, TRANSACTIONS_TOPIC, one.name)
                if shard is not None and broker.connected and one.name not in shard.busy:
                    cluster.trace.note("expires", one.name)
                    _abort(cluster, one, shard)
                    break


@answers("DescribeTransactions")
async def describe_transactions(broker: Broker, call: Call) -> dict[str, Any]:
    """Answer with the state of transactional ids."""
    found = []
    for name in call.fields["transactional_ids"]:
        code, shard = _shard(broker, name)
        one = _known(broker.cluster).get(name)
        if shard is None or one is None:
            found.append(
                {
                    "error_code": code or (_NOT_FOUND if name else _INVALID_REQUEST),
                    "transactional_id": name,
                    "state": "",
                    "producer_id": 0,
                    "producer_epoch": 0,
                }
            )
            continue
        topics: dict[str, list[int]] = {}
        for partition in one.partitions:
            topics.setdefault(partition.topic, []).append(partition.partition)
        found.append({
            "transactional_id": name,
            "state": one.state,
            "timeout_ms": one.timeout_ms,
            "start_time_ms": _TIME + int(one.started * 1000) if one.state == "Ongoing" else -1,
            "producer_id": one.producer,
            "producer_epoch": one.epoch,
            "topics": [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()],
        })  # fmt: skip
    return {"transactions": found}
