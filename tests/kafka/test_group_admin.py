"""Groups, as seen from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors.log.kafka import KafkaOptions
from tests.ks_actors.log.kafka.client.answering import Brokers, in_virtual_time

if TYPE_CHECKING:
    import pytest


def test_brokers_list_their_groups_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may be slow, and takes its time together with the others."""
    brokers = Brokers(monkeypatch, count=3, options=KafkaOptions(api_timeout_ms=15_000, request_timeout_ms=10_000))

    async def test() -> None:
        async with brokers.log() as log:
            for broker in brokers.brokers.values():
                broker.slow_s = 6
            assert await log.group_ids() == ["g"]

    in_virtual_time(test)
