"""The nodes of a topology, as the runtime reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from ks_actors.processors.api import Operator
from ks_actors.records import Headers

OffsetReset: TypeAlias = Literal["earliest", "latest", "none"] | timedelta
"""Where to start reading a partition without a committed offset.

The first record, the end, an error, or the first record of at most some age (KIP-1106).
"""


class InputRecord(NamedTuple):
    """A deserialized record as a timestamp extractor sees it.

    The timestamp (ms) is that in the log.
    """

    key: Any
    value: Any
    timestamp: int
    headers: Headers
    topic: str
    partition: int
    offset: int


class RecordContext(NamedTuple):
    """The context of a record that is to be written, for a topic extractor.

    Timestamp (ms) and headers are those of the record itself. Topic, partition and offset are those
    of its input record: "", -1 and -1 in a punctuation, and where the input record is unknown.
    """

    timestamp: int
    headers: Headers
    topic: str
    partition: int
    offset: int


TimestampExtractor: TypeAlias = Callable[[InputRecord, int], int]
"""Return the time (ms) of a record.

The function gets the record and the highest time seen so far in its partition (-1 if none); a
negative result is invalid.
"""

TopicExtractor: TypeAlias = Callable[[Any, Any, RecordContext], str]
"""Return the topic of a record, from its key, its value and its context. The topic has to exist."""

Partitioner: TypeAlias = (
    Callable[[str, Any, Any, int], "int | None"]
    | Callable[[str, Any, Any, Headers, int], "int | None"]
)
"""Return the partition of a record from topic, key, value and the number of partitions.

A partitioner with five parameters gets the record's headers before the number (KIP-1321): those
that its serdes have left. None selects the default partition, by the hash of the key.
"""


class SourceNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that reads topics, or all topics that match `pattern` in full.

    `key` and `value` are serdes, None is the app's default.
    """

    name: str
    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    key: Any = None
    value: Any = None
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: OffsetReset | None = None
    children: tuple[str, ...] = ()


class ProcessorNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that runs an operator.

    `stores` are the connected stores; `children` are in the order of their addition, in which
    records are forwarded.
    """

    name: str
    operator: Operator
    stores: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


class SinkNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that writes to a topic, or to the topic that a function returns.

    `key` and `value` are serdes, None is the app's default.
    """

    name: str
    topic: str | TopicExtractor
    key: Any = None
    value: Any = None
    partitioner: Partitioner | None = None
    parents: tuple[str, ...] = ()


Node: TypeAlias = SourceNode | ProcessorNode | SinkNode


class InternalTopic(msgspec.Struct, frozen=True):
    """A topic of the app's own: `<application id>-<name>` in the log.

    `partitions` None: as many as the copartitioned topics, or else the topics upstream, have.
    """

    name: str
    partitions: int | None = None
    configs: Mapping[str, str] = {}


class GlobalStore(msgspec.Struct, frozen=True):
    """A store that every instance fills with the whole of one topic.

    The source reads the topic, the processor's operator maintains the store.
    """

    source: str
    topic: str
    store: str
    processor: str
