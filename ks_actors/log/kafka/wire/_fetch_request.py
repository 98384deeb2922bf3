"""A fetch request and its response on the wire.

This module encodes and decodes both without aiokafka's struct types, which take some microseconds
per field: too long for requests that are sent all the time.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, final

from ks_actors.log.kafka.wire._flexible import (
    NO_TAGS,
    FlexibleRequest,
    read_tags,
    read_varint,
    text,
    varint,
)
from ks_actors.log.kafka.wire._requests import Pinned

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from io import BytesIO

    from ks_actors.records import TopicPartition

    Answer: TypeAlias = tuple[
        int, int, int, int, int, Sequence[tuple[int, int]], int, tuple[int, int] | None, bytes
    ]

_INT: Final = Struct(">i")
# Replica, max wait, min bytes, max bytes, isolation, session id and epoch.
_REQUEST: Final = Struct(">iiiibii")
# Partition, leader epoch, fetch offset, last fetched epoch, log start offset, max bytes, no tags.
_ASKED: Final = Struct(">iiqiqix")
# Throttle time, error code, session id.
_RESPONSE: Final = Struct(">ihi")
# Partition, error code, high watermark, last stable offset, log start offset.
_ANSWER: Final = Struct(">ihqqq")
# Producer id and first offset, followed by tags.
_ABORTED: Final = Struct(">qq")
# Leader epoch and its end offset.
_DIVERGING: Final = Struct(">iq")
_DIVERGING_TAG: Final = 0
_UNKNOWN: Final = -1
_MIN_BYTES: Final = 1
_NO_SESSION: Final = (0, -1)
# An empty rack, and no tags.
_REQUEST_END: Final = b"\1\0"


@final
class FetchResponse:
    """The response to a `FetchRequest`: `topics` has the name of each topic and its partitions.

    A partition is a tuple: number, error code, high watermark, last stable offset, first offset,
    aborted transactions (producer id and first offset), preferred replica, divergence, records. The
    divergence is the largest common epoch and its end offset if the log lacks the last fetched
    record, else None.
    """

    __slots__ = ("error_code", "session_id", "throttle_time_ms", "topics")

    def __init__(
        self,
        throttle_time_ms: int,
        error_code: int,
        session_id: int,
        topics: list[tuple[str, list[Answer]]],
    ) -> None:
        self.throttle_time_ms: int = throttle_time_ms
        self.error_code: int = error_code
        self.session_id: int = session_id
        self.topics: list[tuple[str, list[Answer]]] = topics

    @classmethod
    def decode(cls, data: BytesIO) -> FetchResponse:
        """Decode a response from the end of its header on.

        Raises struct.error when the response is cut off.
        """
        raw, at = data.getvalue(), data.tell()
        throttle, code, session = _RESPONSE.unpack_from(raw, at)
        count, at = read_varint(raw, at + _RESPONSE.size)
        topics = []
        # Arrays, texts and bytes begin with their length plus 1; 0 means null.
        for _ in range(count - 1):
            length, at = read_varint(raw, at)
            topic = raw[at : at + length - 1].decode()
            partitions, at = read_varint(raw, at + length - 1)
            answers: list[Answer] = []
            for _ in range(partitions - 1):
                answer, at = cls._answer(raw, at)
                answers.append(answer)
            _, at = read_tags(raw, at)
            topics.append((topic, answers))
        return cls(throttle, code, session, topics)

    @staticmethod
    def _answer(raw: bytes, at: int) -> tuple[Answer, int]:
        """Return a partition, and the position after it."""
        number, code, high, stable, begin = _ANSWER.unpack_from(raw, at)
        aborts, at = read_varint(raw, at + _ANSWER.size)
        aborted = []
        for _ in range(aborts - 1):
            aborted.append(_ABORTED.unpack_from(raw, at))
            _, at = read_tags(raw, at + _ABORTED.size)
        (replica,) = _INT.unpack_from(raw, at)
        size, at = read_varint(raw, at + _INT.size)
        behind = at + max(size - 1, 0)
        records = raw[at:behind]
        tags, at = read_tags(raw, behind)
        diverging = None
        if _DIVERGING_TAG in tags:
            epoch, end = _DIVERGING.unpack_from(raw, tags[_DIVERGING_TAG])
            # A broker may send the field with its default values, which mean that it is missing.
            diverging = (epoch, end) if epoch >= 0 else None
        return (number, code, high, stable, begin, aborted, replica, diverging, records), at


@final
class FetchRequest(FlexibleRequest):
    """A fetch request in version 12, the last version with names of topics, from Kafka 2.8 to 4.x.

    `asked` has topics, each with partitions, their start offsets and the leader epochs of the
    records before these offsets (-1 for unknown). A broker fills the response in this order; a
    topic may occur several times. If a leader's log does not have the preceding record, the leader
    reports where its log diverges (KIP-595). `forgotten` has partitions to drop from the session.
    """

    API_KEY: ClassVar[int] = 1
    API_VERSION: ClassVar[int] = 12
    RESPONSE_TYPE: ClassVar[type[FetchResponse]] = FetchResponse

    __slots__ = ("_asked", "_forgotten", "_partition_bytes", "_start")

    def __init__(
        self,
        wait_ms: int,
        max_bytes: int,
        partition_bytes: int,
        session: tuple[int, int],
        asked: Sequence[tuple[str, Sequence[tuple[int, int, int]]]],
        forgotten: Mapping[str, Sequence[int]],
        isolation: int,
    ) -> None:
        self._start: tuple[int, ...] = (
            _UNKNOWN,
            wait_ms,
            _MIN_BYTES,
            max_bytes,
            isolation,
            *session,
        )
        self._partition_bytes: int = partition_bytes
        self._asked: Sequence[tuple[str, Sequence[tuple[int, int, int]]]] = asked
        self._forgotten: Mapping[str, Sequence[int]] = forgotten

    def encode(self) -> bytes:
        """Return the request without its header."""
        parts = [_REQUEST.pack(*self._start), varint(len(self._asked) + 1)]
        for topic, asked in self._asked:
            parts += (text(topic), varint(len(asked) + 1))
            parts += [
                _ASKED.pack(number, _UNKNOWN, offset, epoch, _UNKNOWN, self._partition_bytes)
                for number, offset, epoch in asked
            ]
            parts.append(NO_TAGS)
        parts.append(varint(len(self._forgotten) + 1))
        for topic, numbers in self._forgotten.items():
            parts += (text(topic), varint(len(numbers) + 1))
            parts += [_INT.pack(number) for number in numbers]
            parts.append(NO_TAGS)
        parts.append(_REQUEST_END)
        return b"".join(parts)


def fetch_once(partition: TopicPartition, offset: int, wait_ms: int, max_bytes: int) -> Pinned:
    """Build a sessionless fetch of one partition that reads open and aborted transactions too."""
    return Pinned(
        FetchRequest,
        wait_ms,
        max_bytes,
        max_bytes,
        _NO_SESSION,
        [(partition.topic, [(partition.partition, offset, _UNKNOWN)])],
        {},
        0,
    )
