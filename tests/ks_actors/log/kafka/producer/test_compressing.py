"""Large sends are compressed in threads, and arrive in their order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import cast

import pytest

from ks_actors import Batch
from ks_actors.log import Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.admin._admin import Admin
from ks_actors.log.kafka.producer._send_call import SendCall
from ks_actors.log.kafka.wire._batch_writer import Encoder, RecordBatch, Written
from tests.kafka.broker import Broker
from tests.kafka.helpers import connect
from tests.ks_actors.log.helpers import batch, new_topic, values_of, write
from tests.waiting import soon

LARGE = 200
KIB = b"".join(b"%d" % number for number in range(300))[:1024]


class Limits:
    """The largest record that each topic takes, here 1 MiB for all."""

    def known_limit(self, _: str) -> int:
        return 1 << 20

    def limit(self, _: str) -> int:
        return 1 << 20


class Noting:
    """An encoder that notes the threads that finish its batches."""

    def __init__(self, options: KafkaOptions) -> None:
        self._encoder = Encoder(options, transactional=False)
        self.seconds = self._encoder.seconds
        self.threads: set[int] = set()

    def write(self, records: Batch, limit: int) -> Iterator[Written]:
        return self._encoder.write(records, limit)

    def finish(self, written: Written) -> RecordBatch:
        self.threads.add(threading.get_ident())
        return self._encoder.finish(written)


@pytest.mark.parametrize(("compression", "count", "elsewhere"), [("gzip", LARGE, True), ("gzip", 1, False), ("none", LARGE, False)])
async def test_slow_compression_leaves_the_loop(compression: str, count: int, elsewhere: bool) -> None:
    """Another thread compresses batches that take some ms; small ones, and uncompressed ones, are not worth that."""
    encoder = Noting(KafkaOptions(compression=compression))  # type: ignore[arg-type]  # of five words
    send_call = SendCall(cast("Admin", Limits()), [Outgoing(TopicPartition("t", 0), batch(*[KIB] * count))])
    await send_call.encode(cast("Encoder", encoder))
    assert (threading.get_ident() not in encoder.threads) == elsewhere


async def test_compression_waits_for_no_thread_of_the_user() -> None:
    """`asyncio.to_thread` of a user's function may have all of its threads busy for long; compression does not queue up behind it."""
    free = threading.Event()
    busy = [asyncio.ensure_future(asyncio.to_thread(free.wait)) for _ in range(64)]
    send_call = SendCall(cast("Admin", Limits()), [Outgoing(TopicPartition("t", 0), batch(*[KIB] * LARGE))])
    try:
        await soon(send_call.encode(Encoder(KafkaOptions(compression="gzip"), transactional=False)))
    finally:
        free.set()
        await asyncio.gather(*busy)


async def test_sends_keep_their_order_while_one_of_them_is_compressed(kafka_broker: Broker) -> None:
    """The next send waits for it; when it is cancelled meanwhile, nothing of it is written, and the next one goes on."""
    log = await connect(kafka_broker, KafkaOptions(compression="gzip"))
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="compressing")
    await write(producer, partition, b"first")
    large = [KIB] * LARGE
    given_up = asyncio.create_task(write(producer, partition, *large))
    await asyncio.sleep(0)
    sends = [asyncio.create_task(write(producer, partition, *values)) for values in (large, [b"small"])]
    await asyncio.sleep(0)
    given_up.cancel()
    assert await soon(asyncio.gather(*sends)) == [LARGE + 1, LARGE + 2]
    assert given_up.cancelled()
    assert await values_of(log, partition) == [b"first", *large, b"small"]
    await log.close()
