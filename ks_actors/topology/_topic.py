"""A topic with its types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from ks_actors.processors.api import check_function, check_offset_reset
from ks_actors.serdes import serde_of
from ks_actors.topology._names import valid_topic

if TYPE_CHECKING:
    from ks_actors.serdes import Serde, SerdeOrType
    from ks_actors.topology._nodes import OffsetReset, Partitioner, TimestampExtractor

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, init=False)
class Topic(Generic[K, V]):
    """A topic: its name, and the serdes of its keys and values, said once.

    It stands wherever the name of a topic does: it brings the options of its place, and options
    that are given beside it come first. `key` and `value` are serdes, or types, as
    `Topic("orders", str, Order)`; a missing serde is the app's default. `timestamp_extractor` and
    `offset_reset` are for reading, as in `Consumed`; `partitioner` is for writing, as in
    `Produced`. Raises TopologyError for a name that Kafka does not allow, and for what is no serde.
    """

    name: str
    key: Serde[K] | None
    value: Serde[V] | None
    timestamp_extractor: TimestampExtractor | None
    offset_reset: OffsetReset | None
    partitioner: Partitioner | None

    def __init__(
        self,
        name: str,
        key: SerdeOrType[K] | None = None,
        value: SerdeOrType[V] | None = None,
        *,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: OffsetReset | None = None,
        partitioner: Partitioner | None = None,
    ) -> None:
        of = f"Topic {name!r}"
        valid_topic(name, "Topic")
        if timestamp_extractor is not None:
            check_function(timestamp_extractor, 2, role="timestamp_extractor", of=of)
        check_offset_reset(offset_reset, of=of)
        if partitioner is not None:
            check_function(partitioner, 4, role="partitioner", of=of, iterated=True)
        fields = {
            "name": name,
            "key": serde_of(key, role="key", of=of),
            "value": serde_of(value, role="value", of=of),
            "timestamp_extractor": timestamp_extractor,
            "offset_reset": offset_reset,
            "partitioner": partitioner,
        }
        for field, value_ in fields.items():
            object.__setattr__(self, field, value_)

    def __str__(self) -> str:
        """Return the name."""
        return self.name
