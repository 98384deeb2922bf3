"""Metadata requests whose answers have the ids of topics (KIP-516)."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any, Final

from aiokafka.protocol.api import RequestStruct, Response  # type: ignore[import-untyped]
from aiokafka.protocol.metadata import (  # type: ignore[import-untyped]
    MetadataRequest as WithoutIds,
)
from aiokafka.protocol.types import (  # type: ignore[import-untyped]
    AbstractType,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from io import BytesIO

_KEY: Final = 3
# The first version with ids, of Kafka 2.8.
_VERSION: Final = 10
_UUID_BYTES: Final = 16
_NO_ID: Final = bytes(_UUID_BYTES)
_NO_TAGS: Final[dict[int, bytes]] = {}
_TEXT = CompactString("utf-8")
_TAGS = ("tags", TaggedFields)


class _Uuid(AbstractType):  # type: ignore[misc]
    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(_UUID_BYTES)


class _MetadataResponse(Response):  # type: ignore[misc]
    API_KEY = _KEY
    API_VERSION = _VERSION
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", CompactArray(
            ("node_id", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT), _TAGS
        )),
        ("cluster_id", _TEXT),
        ("controller_id", Int32),
        ("topics", CompactArray(
            ("error_code", Int16), ("topic", _TEXT), ("topic_id", _Uuid), ("is_internal", Boolean),
            ("partitions", CompactArray(
                ("error_code", Int16), ("partition", Int32), ("leader", Int32),
                ("leader_epoch", Int32), ("replicas", CompactArray(Int32)),
                ("isr", CompactArray(Int32)), ("offline_replicas", CompactArray(Int32)), _TAGS,
            )),
            ("operations", Int32),
            _TAGS,
        )),
        ("operations", Int32),
        _TAGS,
    )  # fmt: skip


class _MetadataRequest(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = _KEY
    API_VERSION = _VERSION
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Uuid), ("topic", _TEXT), _TAGS)),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_operations", Boolean),
        ("include_topic_operations", Boolean),
        _TAGS,
    )


class MetadataRequest(WithoutIds):  # type: ignore[misc]
    """Ask for topics, None for all; it creates none, whatever the broker's settings are."""

    def __init__(self, topics: list[str] | None) -> None:
        super().__init__(topics, allow_auto_topic_creation=False)

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Any:
        """Return the message, with ids if the broker has them."""
        low, high = versions.get(_KEY, (0, -1))
        if not low <= _VERSION <= high:
            return super().prepare(versions)
        topics: list[str] | None = self._topics
        asked = None if topics is None else [(_NO_ID, topic, _NO_TAGS) for topic in topics]
        return _MetadataRequest(asked, False, False, False, _NO_TAGS)


def topics_of(response: Any) -> Iterator[tuple[int, str, str, bool, dict[int, int]]]:
    """Iterate over the topics of a response.

    Each has an error code, its name, its id, whether it is Kafka's own, and the leaders by
    partition, -1 for none. The id is as Kafka's tools print it, empty where the broker has none.
    """
    if isinstance(response, _MetadataResponse):
        for code, name, identity, internal, partitions, *_ in response.topics:
            text = "" if identity == _NO_ID else urlsafe_b64encode(identity).decode().rstrip("=")
            yield code, name, text, internal, {number: at for _, number, at, *_ in partitions}
    else:
        for code, name, internal, partitions in response.topics:
            yield code, name, "", internal, {number: at for _, number, at, *_ in partitions}
