"""The operations of streams that remember keys for a time: duplicates, and times to live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ks_actors._errors import TopologyError
from ks_actors.dsl import _stream
from ks_actors.dsl._infer import value_of
from ks_actors.dsl.graph import named_or_behind
from ks_actors.processors.api import (
    PunctuationType,
    check_function,
    check_kind,
    checked_ms,
)
from ks_actors.serdes import BYTES, LONG, serde_of, with_default
from ks_actors.system import Later
from ks_actors.topology import StoreKind, StoreSpec, check_store_type

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from ks_actors.dsl._stream import Stream
    from ks_actors.serdes import Serde, SerdeOrType
    from ks_actors.topology import StoreType

if TYPE_CHECKING:
    from ks_actors.processors import aggregates, tables
else:
    aggregates = Later("ks_actors.processors.aggregates")
    tables = Later("ks_actors.processors.tables")

K = TypeVar("K")
V = TypeVar("V")


class StreamMemory(Generic[K, V]):
    """The operations of Stream that remember keys for a time, in a store of their own."""

    def distinct(
        self,
        within_ms: int | timedelta,
        *,
        by: Callable[[V], Any] | None = None,
        by_serde: SerdeOrType[Any] | None = None,
        grace_ms: int | timedelta | None = None,
        key: SerdeOrType[K] | None = None,
        name: str | None = None,
        store_type: StoreType | None = None,
    ) -> Stream[K, V]:
        """Keep the first of equal records, and drop its duplicates.

        Two records are equal if their keys are equal, their timestamps are at most `within_ms`
        apart, in either order, and, if `by` is given, the results of `by(value)` are equal. A
        duplicate does not lengthen that time. `by_serde`, a serde or a type, writes the results of
        `by`; it may follow from the annotation of `by`. To find duplicates with any key, choose
        another key first: `select_key`. If an earlier operation may have changed the key, the
        stream is repartitioned; `key` is the serde of the new key.

        A record that is `grace_ms` (default: `within_ms`) behind stream time is late: it is
        dropped and counted, since its duplicates may be forgotten. So are records without key, and
        those for which `by` is None. Forwarded records are kept for the sum of both times, in a
        store with a changelog that is named after the node. Kafka Streams has no such operation
        (KIP-655 proposes one).
        """
        stream = cast("Stream[K, V]", self)
        of = named_or_behind("distinct", name, stream.node)
        within_ms = checked_ms(within_ms, role="within_ms", of=of, least=0)
        grace = within_ms if grace_ms is None else grace_ms
        grace = checked_ms(grace, role="grace_ms", of=of, least=0)
        check_store_type(store_type, role="store_type", of=of)
        part: Serde[Any] | None = serde_of(by_serde, role="by_serde", of=of)
        key_serde: Serde[K] | None = serde_of(key, role="key", of=of)
        if by is not None:
            check_function(by, 1, role="by", of=of)
            part = part or with_default(value_of(by), None)
        if (by is None) != (part is None):
            raise TopologyError(
                f"{of} needs both or neither: by, which returns a part of the value, and "
                "by_serde, such as str, which writes it (or annotate by with '-> str')"
            )
        if stream.repartition_required:
            stream = stream.repartition_for_join(name, key_serde, None)
        keys = key_serde or stream.key
        node_name = stream.graph.name_or(name, "KSTREAM-DISTINCT-")
        store = StoreSpec(
            name=f"{node_name}-store",
            kind=StoreKind.WINDOW,
            key=keys if part is None else aggregates.IdentitySerde(keys, part),
            value=BYTES,
            type=store_type,
            retention_ms=within_ms + grace + 1,
            window_size_ms=max(1, within_ms),
        )
        node = stream.graph.add_processor(
            node_name,
            aggregates.Distinct(store=store.name, within_ms=within_ms, grace_ms=grace, by=by),
            stream.node,
            stores=[store],
        )
        return _stream.Stream(stream.graph, node, stream.sources, key=keys, value=stream.value)

    def expire(
        self,
        after_ms: int | timedelta,
        *,
        clock: PunctuationType = PunctuationType.STREAM_TIME,
        key: SerdeOrType[K] | None = None,
        name: str | None = None,
        store_type: StoreType | None = None,
    ) -> Stream[K, V]:
        """Forward the records, and a record without value for each key without recent records.

        As a table, `stream.expire(after_ms).to_table(…)`, the stream has rows with a time to live:
        each is deleted `after_ms` after its last update, in its store, in the changelog and
        downstream.

        By stream time (the default), a delete is sent when stream time has passed the key's latest
        timestamp by `after_ms`; the delete has the timestamp at which it was due, and the same
        records always give the same deletes. A record that would expire at once is dropped and
        counted. By wall-clock time, a delete is sent `after_ms` after the last record of the key
        was processed, or later by a tenth of `after_ms` or a minute; its timestamp is stream time.
        A backfill refuses wall-clock time, or leaves such deletes to the app.

        Records without key are dropped and counted. A record without value is forwarded, and its
        key needs no other delete. The time of each key's last record is in a store with a
        changelog, named after the node, so a restart forgets none. If an earlier operation may have
        changed the key, the stream is repartitioned; `key` is the serde of the new key. Kafka
        Streams has no such operation (KAFKA-19759 asks for it).
        """
        stream = cast("Stream[K, V]", self)
        of = named_or_behind("expire", name, stream.node)
        after_ms = checked_ms(after_ms, role="after_ms", of=of, least=1)
        check_kind(
            clock,
            PunctuationType,
            role="clock",
            of=of,
            remedy="give PunctuationType.STREAM_TIME or PunctuationType.WALL_CLOCK_TIME",
        )
        check_store_type(store_type, role="store_type", of=of)
        key_serde: Serde[K] | None = serde_of(key, role="key", of=of)
        if stream.repartition_required:
            stream = stream.repartition_for_join(name, key_serde, None)
        graph, keys = stream.graph, key_serde or stream.key
        node_name = graph.name_or(name, "KSTREAM-EXPIRE-")
        store = StoreSpec(
            name=f"{node_name}-store",
            kind=StoreKind.KEY_VALUE,
            key=keys,
            value=LONG,
            type=store_type,
        )
        operator = tables.Expire(
            store=store.name, after_ms=after_ms, wall=clock is PunctuationType.WALL_CLOCK_TIME
        )
        node = graph.add_processor(node_name, operator, stream.node, stores=[store])
        return _stream.Stream(graph, node, stream.sources, key=keys, value=stream.value)
