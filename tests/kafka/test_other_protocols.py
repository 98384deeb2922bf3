"""Groups with members that are not of this library, on a real Kafka."""

from __future__ import annotations

import struct
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
from aiokafka.protocol.api import RequestStruct  # type: ignore[import-untyped]
from aiokafka.protocol.types import (  # type: ignore[import-untyped]
    CompactArray,
    CompactString,
    Int32,
    Schema,
)

from ks_actors import LogError
from ks_actors.log.kafka.client import GROUP
from ks_actors.log.kafka.wire._flexible import FlexibleRequest, TaggedFields
from tests.chaos.checks import AT_LEAST_ONCE
from tests.kafka.broker import Broker
from tests.kafka.counting import counting
from tests.waiting import soon

_TEXT = CompactString("utf-8")


class _Answer:
    """The error code behind the throttle time."""

    API_KEY, API_VERSION = 68, 0

    def __init__(self, error_code: int) -> None:
        self.error_code = error_code

    @classmethod
    def decode(cls, data: BytesIO) -> _Answer:
        return cls(struct.unpack_from(">ih", data.read())[1])


class _ConsumerGroupHeartbeat(FlexibleRequest, RequestStruct):  # type: ignore[misc]
    """The request by which a consumer joins with `group.protocol=consumer` (KIP-848)."""

    API_KEY, API_VERSION = 68, 0
    RESPONSE_TYPE: ClassVar[Any] = _Answer
    SCHEMA = Schema(
        ("group_id", _TEXT),
        ("member_id", _TEXT),
        ("member_epoch", Int32),
        ("instance_id", _TEXT),
        ("rack_id", _TEXT),
        ("rebalance_timeout_ms", Int32),
        ("subscribed_topic_names", CompactArray(_TEXT)),
        ("server_assignor", _TEXT),
        ("topic_partitions", CompactArray(Int32)),
        ("tags", TaggedFields),
    )

    def prepare(self, _: object) -> Self:
        return self


async def test_a_group_of_the_newer_protocol_is_refused(kafka_broker: Broker, tmp_path: Path) -> None:
    """Its coordinator assigns partitions by itself, and not tasks: the app ends at once, by an error that names the cause."""
    async with counting(kafka_broker, AT_LEAST_ONCE, tmp_path) as here:
        joining = _ConsumerGroupHeartbeat(here.name, "", 0, None, None, 60_000, [here.source], None, [], {})
        answer = await here.log._client.send_to_coordinator(GROUP, here.name, joining, lambda answer: [answer.error_code])
        assert answer.error_code == 0
        with pytest.raises(LogError, match=r"has no leader: a member with group.protocol=consumer .* is in it"):
            async with here.app("app") as app:
                await soon(app.run())
