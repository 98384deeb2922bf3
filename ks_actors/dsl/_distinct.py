"""Streams without duplicates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ks_actors._errors import TopologyError
from ks_actors.dsl import _expire, _stream
from ks_actors.dsl.graph import named_or_behind
from ks_actors.processors.aggregates import Distinct, IdentitySerde
from ks_actors.processors.api import check_function, check_one_of, check_serde, check_whole
from ks_actors.serdes import BYTES
from ks_actors.topology import StoreKind, StoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.dsl._stream import Stream
    from ks_actors.serdes import Serde
    from ks_actors.topology import StoreType

K = TypeVar("K")
V = TypeVar("V")


class DistinctRecords(_expire.ExpiringRecords[K, V], Generic[K, V]):
    """The operations of Stream that remember keys: this one leaves out duplicates."""

    def distinct(
        self,
        within_ms: int,
        *,
        by: Callable[[V], Any] | None = None,
        by_serde: Serde[Any] | None = None,
        grace_ms: int | None = None,
        key: Serde[K] | None = None,
        name: str | None = None,
        store_type: StoreType | None = None,
    ) -> Stream[K, V]:
        """Keep the first of records that are the same, and leave out its duplicates.

        Two records are the same when their keys are equal, also the results of `by(value)` if it
        is given, and their timestamps are at most `within_ms` apart, in either order. A duplicate
        does not lengthen that time. `by_serde` writes the results of `by`. To find duplicates
        whatever their keys, choose the key first: `select_key`. The stream is repartitioned if an
        earlier operation may have changed its key; `key` is the serde of the new one.

        A record that is `grace_ms` (default: `within_ms`) behind stream time is late: it is
        dropped and counted, since its duplicates may be forgotten. So are records without key, and
        those for which `by` is None. Forwarded records are kept for the sum of both times, in a
        store with a changelog that is named after the node. Kafka Streams has no such operation
        (KIP-655 proposes one).
        """
        stream = cast("Stream[K, V]", self)
        of = named_or_behind("distinct", name, stream.node)
        check_whole(within_ms, role="within_ms", of=of, least=0)
        grace = within_ms if grace_ms is None else grace_ms
        check_whole(grace, role="grace_ms", of=of, least=0)
        check_one_of(store_type, ("rocksdb", "in_memory", None), role="store_type", of=of)
        check_serde(by_serde, role="by_serde", of=of)
        check_serde(key, role="key", of=of)
        if by is not None:
            check_function(by, 1, role="by", of=of)
        if (by is None) != (by_serde is None):
            raise TopologyError(
                f"{of} needs both or neither: by, which returns a part of the value, and "
                "by_serde, which writes it"
            )
        if stream.repartition_required:
            stream = stream.repartition_for_join(name, key, None)
        keys = key or stream.key
        node_name = stream.graph.name_or(name, "KSTREAM-DISTINCT-")
        store = StoreSpec(
            name=f"{node_name}-store",
            kind=StoreKind.WINDOW,
            key=keys if by_serde is None else IdentitySerde(keys, by_serde),
            value=BYTES,
            type=store_type,
            retention_ms=within_ms + grace + 1,
            window_size_ms=max(1, within_ms),
        )
        node = stream.graph.add_processor(
            node_name,
            Distinct(store=store.name, within_ms=within_ms, grace_ms=grace, by=by),
            stream.node,
            stores=[store],
        )
        return _stream.Stream(stream.graph, node, stream.sources, key=keys, value=stream.value)
