"""Records of topics, as programs send and read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from ks_actors.records import Headers

K = TypeVar("K")
V = TypeVar("V")


class SentRecord(NamedTuple):
    """The place of a record that the log has acknowledged.

    `timestamp_ms` is the timestamp with which the record was sent. A topic with
    `message.timestamp.type` `LogAppendTime` replaces the timestamps of its records.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class TopicRecord(NamedTuple, Generic[K, V]):
    """A record that was read from a topic; `value` is None for a deletion."""

    key: K | None
    value: V | None
    timestamp_ms: int
    headers: Headers
    topic: str
    partition: int
    offset: int
