"""A client over its quota: the broker mutes its connection for a while (KIP-219)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from ks_actors.log.kafka import KafkaLog
from ks_actors.log.kafka.client._connection import Connection
from ks_actors.log.kafka.client._throttles import Throttles
from ks_actors.log.kafka.wire import ProduceRequest
from tests.ks_actors.log.helpers import UNCOMMITTED, new_topic, values_of, write
from tests.ks_actors.log.kafka.consumer.scripted import in_virtual_time


def test_nothing_is_sent_while_a_connection_is_muted(caplog: pytest.LogCaptureFixture) -> None:
    """All that send on it wait for the end; others do not, and a warning comes once a minute."""

    async def test() -> None:
        clock = asyncio.get_running_loop().time
        throttles = Throttles()
        began = clock()

        async def waited(channel: str) -> float:
            await throttles.wait(1, channel)
            return clock() - began

        throttles.note(1, "produce", "broker 1 at here:9092", 0)
        assert await waited("produce") == 0
        throttles.note(1, "produce", "broker 1 at here:9092", 12_000)
        throttles.note(1, "produce", "broker 1 at here:9092", 12_000)
        ends = await asyncio.gather(waited("produce"), waited("main"), waited("produce"))
        assert [round(end, 6) for end in ends] == [12, 0, 12]
        assert round(await waited("produce"), 6) == 12
        throttles.note(1, "main", "broker 1 at here:9092", 60_000)
        assert round(await waited("main"), 6) == 72
        throttles.note(1, "produce", "broker 1 at here:9092", 2_000)
        throttles.note(1, "produce", "broker 1 at here:9092", 500)

    with caplog.at_level(logging.WARNING, logger="ks_actors"):
        in_virtual_time(test)
    assert [record.getMessage() for record in caplog.records] == [
        f"broker 1 at here:9092 throttles this client for {ms} ms: it is over its quota; raise the quota of its user or client id"
        for ms in (12_000, 2_000)
    ]


async def test_records_of_a_throttled_producer_arrive(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the wait; the broker is not taken for one that does not answer."""
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    await write(producer, partition, b"a")
    real, sent = Connection.send, list[float]()

    async def throttled(connection: Connection, request: Any) -> Any:
        response = await real(connection, request)
        if isinstance(request, ProduceRequest):
            sent.append(asyncio.get_running_loop().time())
            response.throttle_time_ms = 300
        return response

    monkeypatch.setattr(Connection, "send", throttled)
    for value in (b"b", b"c"):
        await write(producer, partition, value)
    assert sent[1] - sent[0] >= 0.3
    assert not log.outages()
    await producer.close()
    monkeypatch.undo()
    assert await values_of(log, partition, UNCOMMITTED) == [b"a", b"b", b"c"]
