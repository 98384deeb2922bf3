"""A produce request that copies no record batch, and its response."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from ks_actors.log.kafka._aiokafka import ProduceRequest_v8, ProduceResponse_v8
from ks_actors.log.kafka.wire._requests import check_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from io import BytesIO

    _Topic: TypeAlias = tuple[str, Sequence[tuple[int, bytearray]]]
    # The fields of `_ANSWER`, then the refused records of the batch by index, each with the reason,
    # and the reason for the whole batch (KIP-467).
    _Answer: TypeAlias = tuple[int, int, int, int, int, list[tuple[int, str | None]], str | None]

_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">hii")
_PARTITION: Final = struct.Struct(">ii")
# Partition, error code, base offset, log append time, log start offset.
_ANSWER: Final = struct.Struct(">ihqqq")


@final
class ProduceRequest:
    """Record batches for partitions, by topic.

    `acks` is -1 for all replicas; the broker waits up to `timeout_ms` for the replicas. `check` is
    called right before the request is written, and raises an error if it must not be written.
    """

    def __init__(
        self,
        transactional_id: str | None,
        acks: int,
        timeout_ms: int,
        topics: Sequence[tuple[str, Sequence[tuple[int, bytearray]]]],
        check: Callable[[], None] | None = None,
    ) -> None:
        self._transactional_id: str | None = transactional_id
        self._acks: int = acks
        self._timeout_ms: int = timeout_ms
        self._topics: Sequence[_Topic] = topics
        self._check = check

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Any:
        """Return the message for `Connections` to write.

        Raises LogError if a broker of these API versions does not support it, and the error of
        `check`.
        """
        check_version(ProduceRequest_v8, versions)
        if self._check is not None:
            self._check()
        return _Prepared(self._parts())

    def _parts(self) -> list[bytes | bytearray]:
        made: list[bytes | bytearray] = []
        head = _text(self._transactional_id) + _HEAD.pack(
            self._acks, self._timeout_ms, len(self._topics)
        )
        for topic, partitions in self._topics:
            head += _text(topic) + _INT.pack(len(partitions))
            for number, batch in partitions:
                made += (head + _PARTITION.pack(number, len(batch)), batch)
                head = b""
        return made


class _Response(ProduceResponse_v8):  # type: ignore[misc]
    """The outcome for each batch, decoded without a schema."""

    API_KEY, API_VERSION, SCHEMA = (
        ProduceResponse_v8.API_KEY,
        ProduceResponse_v8.API_VERSION,
        ProduceResponse_v8.SCHEMA,
    )

    @classmethod
    def decode(cls, data: BytesIO | bytes) -> Any:
        """Decode a response."""
        raw = data if isinstance(data, bytes) else data.read()
        topics, at = _read_topics(raw)
        return cls(topics, *_INT.unpack_from(raw, at))


class _Prepared(ProduceRequest_v8):  # type: ignore[misc]
    """A request as pieces, written one after the other."""

    API_KEY, API_VERSION, SCHEMA, RESPONSE_TYPE = (
        ProduceRequest_v8.API_KEY,
        ProduceRequest_v8.API_VERSION,
        ProduceRequest_v8.SCHEMA,
        _Response,
    )

    def __init__(self, parts: list[bytes | bytearray]) -> None:
        self.parts: list[bytes | bytearray] = parts

    def encode(self) -> bytes:
        """Return all pieces as one."""
        return b"".join(self.parts)

    def __repr__(self) -> str:
        return f"<ProduceRequest of {sum(map(len, self.parts))} bytes>"


def _text(text: str | None) -> bytes:
    if text is None:
        return _SHORT.pack(-1)
    encoded = text.encode()
    return _SHORT.pack(len(encoded)) + encoded


def _read_text(data: bytes, at: int) -> tuple[str | None, int]:
    (length,) = _SHORT.unpack_from(data, at)
    at += _SHORT.size
    return (None, at) if length < 0 else (data[at : at + length].decode(), at + length)


def _read_count(data: bytes, at: int) -> tuple[int, int]:
    (count,) = _INT.unpack_from(data, at)
    return count, at + _INT.size


def _read_topics(data: bytes) -> tuple[list[tuple[str | None, list[_Answer]]], int]:
    topics: list[tuple[str | None, list[_Answer]]] = []
    count, at = _read_count(data, 0)
    for _ in range(count):
        topic, at = _read_text(data, at)
        partitions: list[_Answer] = []
        topics.append((topic, partitions))
        answers, at = _read_count(data, at)
        for _ in range(answers):
            number, code, offset, append_time, start = _ANSWER.unpack_from(data, at)
            errors, at = _read_count(data, at + _ANSWER.size)
            records: list[tuple[int, str | None]] = []
            for _ in range(errors):
                index, at = _read_count(data, at)
                text, at = _read_text(data, at)
                records.append((index, text))
            message, at = _read_text(data, at)
            partitions.append((number, code, offset, append_time, start, records, message))
    return topics, at
