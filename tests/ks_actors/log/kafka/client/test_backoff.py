"""Backoff after failures, and for calls that were never sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import LogTimeout
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.client._backoff import LEAST_S, Backoff
from ks_actors.log.kafka.client._client import KafkaClient
from ks_actors.log.kafka.client._connections import Unavailable
from tests.kafka.broker import Broker
from tests.kafka.tampering import Tampering
from tests.ks_actors.log.helpers import fetch_one
from tests.ks_actors.log.kafka.consumer.test_fetch_faults import filled, reading
from tests.ks_actors.log.kafka.producer.test_sender import Slow, sending
from tests.ks_actors.runtime.helpers import in_virtual_time
from tests.waiting import soon

# Whoever waited as for a broker that answers would wait for an hour.
KNOCKING = KafkaOptions(retry_backoff_ms=3_600_000, retry_backoff_max_ms=3_600_000, reconnect_backoff_ms=1, reconnect_backoff_max_ms=2)
AWAY = Unavailable("nobody there", refresh=False, away=True)
BUSY = Unavailable("not now", refresh=False)


@given(st.lists(st.booleans(), max_size=60), st.integers(0, 500), st.integers(0, 5_000))
def test_pauses_double_up_to_their_limit_and_begin_anew_for_another_kind(kinds: list[bool], first: int, most: int) -> None:
    """Each kind by its own two settings; nobody asks again without any."""
    options = KafkaOptions(retry_backoff_ms=first, retry_backoff_max_ms=most, reconnect_backoff_ms=first + 1, reconnect_backoff_max_ms=most + 1)
    backoff = Backoff()
    row = 0
    for place, away in enumerate(kinds):
        row = row + 1 if place and kinds[place - 1] == away else 0
        assert backoff.pause_s(options, away=away) == max(1, min(max(1, first + away) * 2 ** min(row, 10), most + away)) / 1000
        assert backoff
    backoff.end()
    assert not backoff


@pytest.mark.parametrize("count", [1, 30])
@in_virtual_time
async def test_a_broker_that_takes_no_connections_is_knocked_at_by_settings_of_its_own(count: int) -> None:
    """A call goes on soon after it is back, however long it was away."""
    faults: Iterator[Unavailable] = iter([AWAY] * count)

    async def attempt() -> str:
        for fault in faults:
            raise fault
        return "done"

    client = KafkaClient("127.0.0.1:1", KNOCKING, client_id="test")
    assert await client.retry("to get through", attempt, timeout_ms=1_000) == "done"


@in_virtual_time
async def test_a_broker_that_answers_is_asked_again_by_the_usual_settings() -> None:
    """The usual settings hold after an outage as well, when a broker has enough to do."""
    faults = iter([AWAY, BUSY])

    async def attempt() -> None:
        for fault in faults:
            raise fault

    client = KafkaClient("127.0.0.1:1", KNOCKING, client_id="test")
    with pytest.raises(LogTimeout, match="not now"):
        await client.retry("to get through", attempt, timeout_ms=1_000)


@pytest.mark.parametrize("fault", [AWAY, BUSY, Unavailable("look again", soon=True)])
@in_virtual_time
async def test_a_pause_of_zero_is_a_short_one(fault: Unavailable) -> None:
    """Settings of 0 are no reason to do nothing else than to ask: time goes by between two attempts."""
    faults = iter([fault] * 30)

    async def attempt() -> float:
        for found in faults:
            raise found
        return asyncio.get_running_loop().time()

    options = KafkaOptions(retry_backoff_ms=0, retry_backoff_max_ms=0, reconnect_backoff_ms=0, reconnect_backoff_max_ms=0)
    client = KafkaClient("127.0.0.1:1", options, client_id="test")
    began = asyncio.get_running_loop().time()
    assert await client.retry("to get through", attempt, timeout_ms=1_000) - began >= 30 * LEAST_S / 2


class Away(Slow):
    """A cluster of one broker that takes no connections for a time."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.options = KNOCKING
        self._left = count

    async def send(self, _node: int, request: Any, **_: object) -> Any:
        if self._left:
            self._left -= 1
            raise AWAY
        self.sent.append([])
        return await super().send(_node, request)


@in_virtual_time
async def test_records_are_sent_as_soon_as_their_broker_is_back() -> None:
    """They do not wait as long as for one that has refused them."""
    client = Away(30)
    sender, (future,) = sending(client)
    async with asyncio.timeout(5):
        await sender.wait_for([future])
    assert future.result() == 8


async def test_records_are_fetched_as_soon_as_their_broker_is_back(kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client fetches at once even when no broker knew the leader for a while."""
    tampering = Tampering(monkeypatch)
    async with KafkaLog(kafka_broker.bootstrap) as usual, KafkaLog(kafka_broker.bootstrap, options=KNOCKING) as log:
        partition = await filled(usual)
        tampering.add("Fetch", *[AWAY] * 20)
        tampering.add("Metadata", *[AWAY] * 5)
        log._client._topics.found.pop(partition.topic, None)
        assert (await soon(fetch_one(reading(log, partition)))).batch.values == [b"a", b"b", b"c"]
        assert tampering.left == 0
