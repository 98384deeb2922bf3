"""Streams and tables whose keys have a time to live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, cast

from ks_actors.dsl import _stream
from ks_actors.dsl.graph import named_or_behind
from ks_actors.processors.api import (
    PunctuationType,
    check_kind,
    check_one_of,
    check_serde,
    check_whole,
)
from ks_actors.processors.tables import Expire
from ks_actors.serdes import LONG
from ks_actors.topology import StoreKind, StoreSpec

if TYPE_CHECKING:
    from ks_actors.dsl._stream import Stream
    from ks_actors.serdes import Serde
    from ks_actors.topology import StoreType

K = TypeVar("K")
V = TypeVar("V")


class ExpiringRecords(Generic[K, V]):
    """The operation of Stream that deletes keys without records."""

    def expire(
        self,
        after_ms: int,
        *,
        clock: PunctuationType = PunctuationType.STREAM_TIME,
        key: Serde[K] | None = None,
        name: str | None = None,
        store_type: StoreType | None = None,
    ) -> Stream[K, V]:
        """Forward the records, and a record without value for each key that has had none lately.

        As a table, `stream.expire(after_ms).to_table(…)`, the stream has rows with a time to live:
        each is deleted `after_ms` after its last update, in its store, in the changelog and
        downstream.

        By stream time (the default) that is when stream time is so far past the latest timestamp
        of the key's records; the delete has the timestamp at which it was due, and the same records
        always give the same deletes. A record that would expire at once is dropped and counted. By
        wall-clock time it is so long after the last record was processed, and up to a tenth of
        `after_ms`, or a minute, later; the delete has stream time. A backfill refuses that, or
        leaves such deletes to the app.

        Records without key are dropped and counted. A record without value is forwarded, and its
        key needs no other delete. The time of each key's last record is in a store with a
        changelog, named after the node, so a restart forgets none. The stream is repartitioned if
        an earlier operation may have changed its key; `key` is the serde of the new one. Kafka
        Streams has no such operation (KAFKA-19759 asks for one).
        """
        stream = cast("Stream[K, V]", self)
        of = named_or_behind("expire", name, stream.node)
        check_whole(after_ms, role="after_ms", of=of, least=1)
        check_kind(
            clock,
            PunctuationType,
            role="clock",
            of=of,
            remedy="give PunctuationType.STREAM_TIME or PunctuationType.WALL_CLOCK_TIME",
        )
        check_one_of(store_type, ("rocksdb", "in_memory", None), role="store_type", of=of)
        check_serde(key, role="key", of=of)
        if stream.repartition_required:
            stream = stream.repartition_for_join(name, key, None)
        graph, keys = stream.graph, key or stream.key
        node_name = graph.name_or(name, "KSTREAM-EXPIRE-")
        store = StoreSpec(
            name=f"{node_name}-store",
            kind=StoreKind.KEY_VALUE,
            key=keys,
            value=LONG,
            type=store_type,
        )
        operator = Expire(
            store=store.name, after_ms=after_ms, wall=clock is PunctuationType.WALL_CLOCK_TIME
        )
        node = graph.add_processor(node_name, operator, stream.node, stores=[store])
        return _stream.Stream(graph, node, stream.sources, key=keys, value=stream.value)
