"""Fetch requests and responses of version 12 as aiokafka's types describe them, which has only those up to version 11."""

from __future__ import annotations

from typing import Any

from aiokafka.protocol.api import RequestStruct, Response  # type: ignore[import-untyped]
from aiokafka.protocol.types import (  # type: ignore[import-untyped]
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
    UnsignedVarInt32,
)


class Tags(TaggedFields):  # type: ignore[misc]
    """Writes tags as Kafka does: aiokafka refuses tag 0, and leaves out sizes."""

    @classmethod
    def encode(cls, value: dict[int, bytes]) -> bytes:
        number = UnsignedVarInt32.encode
        return b"".join((number(len(value)), *(number(tag) + number(len(raw)) + raw for tag, raw in value.items())))


TAGS = ("tags", Tags)


class FetchResponseV12(Response):  # type: ignore[misc]
    API_KEY = 1
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("session_id", Int32),
        (
            "topics",
            CompactArray(
                ("topic", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("error_code", Int16),
                        ("high_watermark", Int64),
                        ("last_stable_offset", Int64),
                        ("log_start_offset", Int64),
                        ("aborted_transactions", CompactArray(("producer_id", Int64), ("first_offset", Int64), TAGS)),
                        ("preferred_read_replica", Int32),
                        ("records", CompactBytes),
                        TAGS,
                    ),
                ),
                TAGS,
            ),
        ),
        TAGS,
    )


class FetchRequestV12(RequestStruct):  # type: ignore[misc]
    API_KEY = 1
    API_VERSION = 12
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = FetchResponseV12
    SCHEMA = Schema(
        ("replica_id", Int32),
        ("max_wait_time", Int32),
        ("min_bytes", Int32),
        ("max_bytes", Int32),
        ("isolation_level", Int8),
        ("session_id", Int32),
        ("session_epoch", Int32),
        (
            "topics",
            CompactArray(
                ("topic", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("current_leader_epoch", Int32),
                        ("fetch_offset", Int64),
                        ("last_fetched_epoch", Int32),
                        ("log_start_offset", Int64),
                        ("max_bytes", Int32),
                        TAGS,
                    ),
                ),
                TAGS,
            ),
        ),
        (
            "forgotten_topics_data",
            CompactArray(("topic", CompactString("utf-8")), ("partitions", CompactArray(Int32)), TAGS),
        ),
        ("rack_id", CompactString("utf-8")),
        TAGS,
    )


def topics_of(topics: list[tuple[str, list[tuple[Any, ...]]]]) -> list[tuple[Any, ...]]:
    """Return what `FetchResponse` has as topics in the form of the schema."""
    return [(topic, [_answer(answer) for answer in answers], {}) for topic, answers in topics]


def _answer(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    number, code, high, stable, begin, aborted, replica, diverging, raw = answer
    tags = {} if diverging is None else {0: diverging[0].to_bytes(4, "big", signed=True) + diverging[1].to_bytes(8, "big", signed=True) + b"\0"}
    return number, code, high, stable, begin, [(*one, {}) for one in aborted], replica, raw, tags
