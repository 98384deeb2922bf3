"""Options of operations: serdes first, always optional."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ks_actors._errors import TopologyError
from ks_actors._hints import Hinted
from ks_actors.processors.api import (
    check_configs,
    check_flag,
    check_function,
    check_offset_reset,
    check_options,
    check_whole,
    checked_ms,
    takes_headers,
)
from ks_actors.serdes import serde_of
from ks_actors.topology import check_store_type, valid_name, with_topic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from ks_actors.serdes import Serde, SerdeOrType
    from ks_actors.topology import OffsetReset, Partitioner, StoreType, TimestampExtractor

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")
KO = TypeVar("KO")

NO_CONFIGS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True)
class Consumed(Generic[K, V], metaclass=Hinted):
    """Options for reading a topic. A missing serde or extractor is the app's default.

    Without a committed offset, reading starts at `offset_reset`: "earliest", "latest", "none" (an
    error), or a timedelta before now (KIP-1106); None is the app's setting. It does not apply to
    global tables and global stores, which read the whole topic. The extractor gets the record and
    the partition's time (ms).
    """

    key: Serde[K] | None
    value: Serde[V] | None
    name: str | None
    timestamp_extractor: TimestampExtractor | None
    offset_reset: OffsetReset | None

    def __init__(
        self,
        key: SerdeOrType[K] | None = None,
        value: SerdeOrType[V] | None = None,
        name: str | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: OffsetReset | None = None,
    ) -> None:
        set_fields(self, locals())

    def __post_init__(self) -> None:
        convert_serdes(self, "key", "value")
        _check_name(self)
        if self.timestamp_extractor is not None:
            check_function(self.timestamp_extractor, 2, role="timestamp_extractor", of="Consumed")
        check_offset_reset(self.offset_reset, of="Consumed")


@dataclass(frozen=True)
class Produced(Generic[K, V], metaclass=Hinted):
    """Options for writing a topic. A missing serde is the stream's, or else the app's default."""

    key: Serde[K] | None
    value: Serde[V] | None
    name: str | None
    partitioner: Partitioner | None

    def __init__(
        self,
        key: SerdeOrType[K] | None = None,
        value: SerdeOrType[V] | None = None,
        name: str | None = None,
        partitioner: Partitioner | None = None,
    ) -> None:
        set_fields(self, locals())

    def __post_init__(self) -> None:
        convert_serdes(self, "key", "value")
        _check_name(self)
        _check_partitioner(self, self.partitioner)


@dataclass(frozen=True)
class Grouped(Generic[K, V], metaclass=Hinted):
    """Options for grouping: serdes of the repartition topic and the store.

    `name` names the repartition topic (and the key selector).
    """

    key: Serde[K] | None
    value: Serde[V] | None
    name: str | None

    def __init__(
        self,
        key: SerdeOrType[K] | None = None,
        value: SerdeOrType[V] | None = None,
        name: str | None = None,
    ) -> None:
        set_fields(self, locals())

    def __post_init__(self) -> None:
        convert_serdes(self, "key", "value")
        _check_name(self)


@dataclass(frozen=True)
class Joined(Generic[K, V, W], metaclass=Hinted):
    """Options for a stream-table join: serdes of the key, the stream's value, the table's value.

    `name` names the join and its repartition topic. With `grace_ms`, a record waits until stream
    time has passed its timestamp by that much, so that earlier rows of the table arrive before the
    join. The table's store has to be versioned, with a history of at least `grace_ms` (KIP-923).
    """

    key: Serde[K] | None
    value: Serde[V] | None
    other_value: Serde[W] | None
    name: str | None
    grace_ms: int | timedelta | None

    def __init__(
        self,
        key: SerdeOrType[K] | None = None,
        value: SerdeOrType[V] | None = None,
        other_value: SerdeOrType[W] | None = None,
        name: str | None = None,
        grace_ms: int | timedelta | None = None,
    ) -> None:
        set_fields(self, locals())

    def __post_init__(self) -> None:
        convert_serdes(self, "key", "value", "other_value")
        _check_name(self)
        _set_ms(self, "grace_ms")


@dataclass(frozen=True)
class TableJoined(Generic[K, KO], metaclass=Hinted):
    """Options for a join of tables by a foreign key.

    `name` is the prefix of the names of the join's nodes, topics and store. `partitioner`
    returns the partitions of the left table's keys, `other_partitioner` those of the right table's.
    Each must be the partitioner with which the table's own topic was written: it is called like any
    partitioner, always with None as value, and must return one partition, or None for the default.
    """

    name: str | None = None
    partitioner: Partitioner | None = None
    other_partitioner: Partitioner | None = None

    def __post_init__(self) -> None:
        _check_name(self)
        for role in ("partitioner", "other_partitioner"):
            given = getattr(self, role)
            if given is not None:
                check_function(given, 4, 5, role=role, of="TableJoined")


@dataclass(frozen=True)
class Repartitioned(Generic[K, V], metaclass=Hinted):
    """Options for a repartition: `partitions` None takes as many as the topics upstream have."""

    key: Serde[K] | None
    value: Serde[V] | None
    name: str | None
    partitions: int | None
    partitioner: Partitioner | None

    def __init__(
        self,
        key: SerdeOrType[K] | None = None,
        value: SerdeOrType[V] | None = None,
        name: str | None = None,
        partitions: int | None = None,
        partitioner: Partitioner | None = None,
    ) -> None:
        set_fields(self, locals())

    def __post_init__(self) -> None:
        convert_serdes(self, "key", "value")
        _check_name(self)
        _check_partitioner(self, self.partitioner)
        if self.partitions is not None:
            check_whole(self.partitions, role="partitions", of="Repartitioned", least=1)


@dataclass(frozen=True)
class Materialized(Generic[K, V], metaclass=Hinted):
    """Options for the store of a table. Queries can read a store with a `name`.

    An operation that takes a Materialized also takes the name alone: `count("counts")`.

    `store_type` says where the rows are: `"rocksdb"`, `"in_memory"`, or a function that makes a
    `StoreEngine`; None is the app's default. `retention_ms` is for windowed stores: None keeps them
    as long as window and grace demand. `logging` keeps a changelog topic; `changelog_configs`
    override the configs of the store. `caching` lets the cache hold updates back, so that only the
    last of several updates of a row is forwarded. It has an effect only if the app sets
    `statestore_cache_max_bytes`; otherwise each update is forwarded at once.

    With `history_retention_ms` the store is versioned (KIP-889, KIP-914), and in RocksDB unless
    `store_type` says otherwise, and never cached. A stream is joined with the table as of each
    record's time. An update that is older than the row's latest goes into the history, and
    table operations downstream ignore it.
    """

    name: str | None
    key: Serde[K] | None
    value: Serde[V] | None
    store_type: StoreType | None
    retention_ms: int | timedelta | None
    logging: bool
    changelog_configs: Mapping[str, str]
    caching: bool
    history_retention_ms: int | timedelta | None

    def __init__(
        self,
        name: str | None = None,
        key: SerdeOrType[K] | None = None,
        value: SerdeOrType[V] | None = None,
        store_type: StoreType | None = None,
        retention_ms: int | timedelta | None = None,
        logging: bool = True,
        changelog_configs: Mapping[str, str] = NO_CONFIGS,
        caching: bool = True,
        history_retention_ms: int | timedelta | None = None,
    ) -> None:
        set_fields(self, locals())

    def __post_init__(self) -> None:
        convert_serdes(self, "key", "value")
        _check_name(self)
        check_store_type(self.store_type, role="store_type", of="Materialized")
        _set_ms(self, "retention_ms", "history_retention_ms")
        for role, flag in (("logging", self.logging), ("caching", self.caching)):
            check_flag(flag, role=role, of="Materialized")
        check_configs(self.changelog_configs, role="changelog_configs", of="Materialized")


def consumed_from(
    topics: Any,
    consumed: Consumed[Any, Any] | None,
    of: str,
    roles: tuple[str, ...] = ("key", "value", "timestamp_extractor", "offset_reset"),
) -> tuple[Any, Consumed[Any, Any]]:
    """Return the names of topics, and the options for reading them: `consumed` overrides Topics."""
    options: Consumed[Any, Any] = check_options(consumed, Consumed, of=of)
    named, found = with_topic(topics, of, **{role: getattr(options, role) for role in roles})
    return named, replace(options, **found)


def whole_topic(topic: Any, consumed: Consumed[Any, Any] | None, of: str) -> Consumed[Any, Any]:
    """Return the options for reading a topic that is always read from its beginning.

    Raises TopologyError for an offset reset.
    """
    _, options = consumed_from(topic, consumed, of, ("key", "value", "timestamp_extractor"))
    if options.offset_reset is not None:
        raise TopologyError(
            f"offset_reset of {of} has no effect, because every instance reads the whole topic: "
            "leave it out"
        )
    return options


def set_fields(options: Any, arguments: dict[str, Any]) -> None:
    """Set the fields of options from the arguments of their `__init__`, and check them."""
    for name in options.__match_args__:
        object.__setattr__(options, name, arguments[name])
    options.__post_init__()


def convert_serdes(options: Any, *roles: str) -> None:
    """Replace types by their serdes. Raises TopologyError for anything but types and serdes."""
    for role in roles:
        serde = serde_of(getattr(options, role), role=role, of=type(options).__name__)
        object.__setattr__(options, role, serde)


def _set_ms(options: Any, *roles: str) -> None:
    for role in roles:
        if (time := getattr(options, role)) is not None:
            time = checked_ms(time, role=role, of=type(options).__name__, least=0)
            object.__setattr__(options, role, time)


def _check_name(options: Any) -> None:
    if options.name is not None:
        valid_name(options.name)


def _check_partitioner(options: Any, partitioner: Any) -> None:
    takes_headers(partitioner, type(options).__name__)
