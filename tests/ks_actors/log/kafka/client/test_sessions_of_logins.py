"""Logins that brokers take for a time only (KIP-368)."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.client._client import KafkaClient
from ks_actors.log.kafka.client._connections import MAIN
from tests.kafka.broker import PASSWORD, USER, Broker, require_kafka


@pytest.mark.extended
@pytest.mark.heavy("a broker of its own")
async def test_a_connection_is_renewed_before_its_login_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No request is lost and nothing is warned of, however many requests are under way when a login ends."""
    caplog.set_level(logging.WARNING, "ks_actors")
    require_kafka()
    broker = Broker(tmp_path / "broker", secure=True, settings={"connections.max.reauth.ms": "2000"})
    broker.start()
    options = KafkaOptions(sasl_mechanism="PLAIN", sasl_username=USER, sasl_password=PASSWORD)
    client = KafkaClient(broker.address("SASL_PLAINTEXT"), options, client_id="test")
    try:
        await client.start()
        seen = set[Any]()
        while len(seen) < 3:
            await asyncio.gather(*(client.refresh() for _ in range(3)))
            seen |= {found for (_, channel), found in client._connections._ready.items() if channel == MAIN}
        assert client.lost == 0
    finally:
        await client.close()
        broker.kill()
    assert [record.getMessage() for record in caplog.records if record.name.startswith("ks_actors") and "in the clear" not in record.msg] == []
