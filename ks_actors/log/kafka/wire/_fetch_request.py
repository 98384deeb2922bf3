"""A fetch request and its response on the wire.

Both are encoded and decoded here: aiokafka's struct types take some microseconds per field, too
much for requests sent all day.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, final

from ks_actors.log.kafka.wire._requests import Pinned

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from io import BytesIO

    from ks_actors.records import TopicPartition

    Answer: TypeAlias = tuple[int, int, int, int, int, Sequence[tuple[int, int]], int, bytes]

_SHORT: Final = Struct(">h")
_INT: Final = Struct(">i")
_HEADER: Final = Struct(">hhih")
# Replica, max wait, min bytes, max bytes, isolation, session id and epoch, number of topics.
_REQUEST: Final = Struct(">iiiibiii")
# Partition, leader epoch, fetch offset, log start offset, max bytes.
_ASKED: Final = Struct(">iiqqi")
# Throttle time, error code, session id, number of topics.
_RESPONSE: Final = Struct(">ihii")
# Partition, error code, high watermark, last stable offset, log start offset, aborted count.
_ANSWER: Final = Struct(">ihqqqi")
_ABORTED: Final = Struct(">qq")
_RECORDS: Final = Struct(">ii")
_UNKNOWN: Final = -1
_MIN_BYTES: Final = 1
_NO_SESSION: Final = (0, -1)
_NO_RACK: Final = _SHORT.pack(0)


@final
class _Header:
    """The header of a request or of a response, with the only parts that aiokafka uses."""

    __slots__ = ("_raw", "correlation_id")

    def __init__(self, correlation_id: int, raw: bytes = b"") -> None:
        self.correlation_id: int = correlation_id
        self._raw = raw

    def encode(self) -> bytes:
        return self._raw


@final
class FetchResponse:
    """The response to a `FetchRequest`: `topics` has the name of each topic and its partitions.

    A partition is a tuple: number, error code, high watermark, last stable offset, first offset,
    aborted transactions (producer id and first offset), preferred replica, records.
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

        Raises struct.error when it is cut off.
        """
        raw, at = data.getvalue(), data.tell()
        throttle, code, session, count = _RESPONSE.unpack_from(raw, at)
        at += _RESPONSE.size
        topics = []
        for _ in range(count):
            (length,) = _SHORT.unpack_from(raw, at)
            behind = at + _SHORT.size + length
            topic = raw[at + _SHORT.size : behind].decode()
            (partitions,) = _INT.unpack_from(raw, behind)
            at = behind + _INT.size
            answers: list[Answer] = []
            for _ in range(partitions):
                number, error, high, stable, begin, aborts = _ANSWER.unpack_from(raw, at)
                at += _ANSWER.size
                aborted = []
                for _ in range(aborts):
                    aborted.append(_ABORTED.unpack_from(raw, at))
                    at += _ABORTED.size
                replica, size = _RECORDS.unpack_from(raw, at)
                at += _RECORDS.size
                behind = at + max(size, 0)
                answers.append(
                    (number, error, high, stable, begin, aborted, replica, raw[at:behind])
                )
                at = behind
            topics.append((topic, answers))
        return cls(throttle, code, session, topics)


@final
class FetchRequest:
    """A fetch request in version 11, the last one that names topics alike from Kafka 2.8 to 4.x.

    `asked` has topics, each with partitions and their start offsets, in the order in which a broker
    fills the response; a topic may come again. `forgotten` has the partitions to drop from the
    session.
    """

    API_KEY: ClassVar[int] = 1
    API_VERSION: ClassVar[int] = 11
    RESPONSE_TYPE: ClassVar[type[FetchResponse]] = FetchResponse

    __slots__ = ("_asked", "_forgotten", "_partition_bytes", "_start")

    def __init__(
        self,
        wait_ms: int,
        max_bytes: int,
        partition_bytes: int,
        session: tuple[int, int],
        asked: Sequence[tuple[str, Sequence[tuple[int, int]]]],
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
            len(asked),
        )
        self._partition_bytes: int = partition_bytes
        self._asked: Sequence[tuple[str, Sequence[tuple[int, int]]]] = asked
        self._forgotten: Mapping[str, Sequence[int]] = forgotten

    def build_request_header(self, correlation_id: int, client_id: str) -> _Header:
        """Return the header of this request."""
        name = client_id.encode()
        return _Header(
            correlation_id,
            _HEADER.pack(self.API_KEY, self.API_VERSION, correlation_id, len(name)) + name,
        )

    def parse_response_header(self, data: BytesIO) -> _Header:
        """Decode the header of the response."""
        return _Header(*_INT.unpack(data.read(_INT.size)))

    def encode(self) -> bytes:
        """Return the request without its header."""
        parts = [_REQUEST.pack(*self._start)]
        for topic, asked in self._asked:
            name = topic.encode()
            parts += (_SHORT.pack(len(name)), name, _INT.pack(len(asked)))
            parts += [
                _ASKED.pack(number, _UNKNOWN, offset, _UNKNOWN, self._partition_bytes)
                for number, offset in asked
            ]
        parts.append(_INT.pack(len(self._forgotten)))
        for topic, numbers in self._forgotten.items():
            name = topic.encode()
            parts += (_SHORT.pack(len(name)), name, _INT.pack(len(numbers)))
            parts += [_INT.pack(number) for number in numbers]
        parts.append(_NO_RACK)
        return b"".join(parts)


def fetch_once(partition: TopicPartition, offset: int, wait_ms: int, max_bytes: int) -> Pinned:
    """Build a sessionless fetch of one partition that reads open and aborted transactions too."""
    return Pinned(
        FetchRequest,
        wait_ms,
        max_bytes,
        max_bytes,
        _NO_SESSION,
        [(partition.topic, [(partition.partition, offset)])],
        {},
        0,
    )
