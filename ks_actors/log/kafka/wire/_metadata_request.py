"""Metadata requests whose answers have the ids of topics (KIP-516)."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from struct import Struct, error
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ks_actors.log.kafka._aiokafka import (
    AbstractType,
    Boolean,
    CompactArray,
    CompactString,
    RequestStruct,
    Schema,
)
from ks_actors.log.kafka._aiokafka import MetadataRequest as WithoutIds
from ks_actors.log.kafka.wire._flexible import FlexibleRequest, TaggedFields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from io import BytesIO

_KEY: Final = 3
# The first version with ids, new in Kafka 2.8.
_VERSION: Final = 10
_UUID_BYTES: Final = 16
_NO_ID: Final = bytes(_UUID_BYTES)
_NO_TAGS: Final[dict[int, bytes]] = {}
_INT: Final = Struct(">i")
_SHORT: Final = Struct(">h")
# Error code, number, leader, leader epoch.
_PARTITION: Final = Struct(">hiii")
_REPLICA_LISTS: Final = 3
# Each byte of a variable-length number has seven bits of it, and this bit if more bytes follow.
_MORE: Final = 0x80
_TEXT = CompactString("utf-8")
_TAGS = ("tags", TaggedFields)


class _Uuid(AbstractType):  # type: ignore[misc]
    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(_UUID_BYTES)


class _MetadataResponse:
    """A response in version 10.

    This class decodes it, since aiokafka's compact types take some 90 µs per partition.
    """

    API_KEY = _KEY
    API_VERSION = _VERSION

    def __init__(self, raw: bytes) -> None:
        # Skip the throttle time.
        count, at = _count(raw, _INT.size)
        self.brokers: list[tuple[int, str, int]] = []
        for _ in range(count):
            (node,), at = _INT.unpack_from(raw, at), at + _INT.size
            host, at = _text(raw, at)
            (port,), at = _INT.unpack_from(raw, at), at + _INT.size
            _, at = _text(raw, at)
            at = _behind_tags(raw, at)
            self.brokers.append((node, host, port))
        self.cluster_id, at = _text(raw, at)
        (self.controller_id,), at = _INT.unpack_from(raw, at), at + _INT.size
        self.topics: list[tuple[int, str, bytes, bool, dict[int, int], dict[int, int]]] = []
        count, at = _count(raw, at)
        for _ in range(count):
            (code,), at = _SHORT.unpack_from(raw, at), at + _SHORT.size
            name, at = _text(raw, at)
            identity, at = raw[at : at + _UUID_BYTES], at + _UUID_BYTES
            internal, at = bool(raw[at]), at + 1
            leaders: dict[int, int] = {}
            epochs: dict[int, int] = {}
            partitions, at = _count(raw, at)
            for _ in range(partitions):
                _, number, leader, epoch = _PARTITION.unpack_from(raw, at)
                leaders[number], epochs[number] = leader, epoch
                at += _PARTITION.size
                # Skip all replicas, in-sync replicas, offline replicas.
                for _ in range(_REPLICA_LISTS):
                    replicas, at = _count(raw, at)
                    at += replicas * _INT.size
                at = _behind_tags(raw, at)
            # Skip the permitted operations, which were not requested.
            at = _behind_tags(raw, at + _INT.size)
            self.topics.append((code, name, identity, internal, epochs, leaders))
        # Check that the permitted operations of the cluster follow: then nothing was cut off.
        _INT.unpack_from(raw, at)

    @classmethod
    def decode(cls, data: BytesIO) -> _MetadataResponse:
        """Decode a response after its header. Raises struct.error for cut off bytes."""
        try:
            return cls(data.read())
        except IndexError:
            raise error("a metadata response is cut off") from None


def _number(raw: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and the position after it."""
    found = shift = 0
    while (byte := raw[at]) & _MORE:
        found |= (byte ^ _MORE) << shift
        shift, at = shift + 7, at + 1
    return found | byte << shift, at + 1


def _count(raw: bytes, at: int) -> tuple[int, int]:
    """Return the length of an array or a text (0 for null), and the position after the length."""
    found, at = _number(raw, at)
    return max(0, found - 1), at


def _text(raw: bytes, at: int) -> tuple[str, int]:
    """Return a text (empty for null), and the position after it."""
    length, at = _count(raw, at)
    return raw[at : at + length].decode(), at + length


def _behind_tags(raw: bytes, at: int) -> int:
    """Return the position after tagged fields."""
    count, at = _number(raw, at)
    for _ in range(count):
        _, at = _number(raw, at)
        length, at = _number(raw, at)
        at += length
    return at


class _MetadataRequest(FlexibleRequest, RequestStruct):  # type: ignore[misc]
    API_KEY = _KEY
    API_VERSION = _VERSION
    RESPONSE_TYPE: ClassVar[Any] = _MetadataResponse
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Uuid), ("topic", _TEXT), _TAGS)),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_operations", Boolean),
        ("include_topic_operations", Boolean),
        _TAGS,
    )


class MetadataRequest:
    """Ask for topics, None for all; create no topic, whatever the broker's settings are."""

    def __init__(self, topics: list[str] | None) -> None:
        self.topics: list[str] | None = topics

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Any:
        """Return the message, in a version with topic ids if the broker has them."""
        low, high = versions.get(_KEY, (0, -1))
        topics = self.topics
        if not low <= _VERSION <= high:
            return WithoutIds(topics, allow_auto_topic_creation=False).prepare(dict(versions))
        asked = None if topics is None else [(_NO_ID, topic, _NO_TAGS) for topic in topics]
        return _MetadataRequest(asked, False, False, False, _NO_TAGS)


def cluster_of(response: Any) -> str:
    """Return the id of the cluster; empty when the broker does not report it."""
    return getattr(response, "cluster_id", None) or ""


def topics_of(
    response: Any,
) -> Iterator[tuple[int, str, str, bool, dict[int, int], dict[int, int]]]:
    """Iterate over the topics of a response.

    Each topic has an error code, its name, its id, whether it is Kafka's own, and by partition the
    leaders (-1 for none) and their epochs. The id is as Kafka's tools print it; older brokers have
    neither ids nor epochs.
    """
    if isinstance(response, _MetadataResponse):
        for code, name, identity, internal, epochs, leaders in response.topics:
            text = "" if identity == _NO_ID else urlsafe_b64encode(identity).decode().rstrip("=")
            yield code, name, text, internal, leaders, epochs
    else:
        for code, name, internal, partitions in response.topics:
            yield code, name, "", internal, {number: at for _, number, at, *_ in partitions}, {}
