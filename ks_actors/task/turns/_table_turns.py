"""A stream joined with tables: take records of the tables ahead of the stream's, in batches."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from ks_actors.processors.joins import StreamTableJoin
from ks_actors.processors.stateless import DropNullKeys, Filter, MapValues, PassThrough, Peek
from ks_actors.processors.tables import TableSource
from ks_actors.state.key_value import KeyValueBase
from ks_actors.topology import ProcessorNode, SourceNode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ks_actors.history import EdgeTaps
    from ks_actors.processors.api import ProcessBatch
    from ks_actors.task._node import NodeWork
    from ks_actors.task._partition_group import PartitionGroup
    from ks_actors.task._record_context import RecordContextHolder
    from ks_actors.topology import SinkNode

    Nodes = Mapping[str, SourceNode | ProcessorNode | SinkNode]

# Their results have the keys of their records.
_KEEP_KEYS: Final = (DropNullKeys, Filter, MapValues, PassThrough, Peek, StreamTableJoin)


def find_tables(nodes: Nodes, works: Mapping[str, NodeWork]) -> frozenset[str]:
    """Return the sources of a task's tables, if a record of theirs concerns only its own key.

    So it is where one stream is joined with tables by its own keys, and nothing else uses the
    tables. Otherwise there are none. All nodes must take batches.
    """
    sources = [node for node in nodes.values() if isinstance(node, SourceNode)]
    tables = {
        source.name: store
        for source in sources
        if (store := _table_of(source, nodes, works)) is not None
    }
    streams = [source for source in sources if source.name not in tables]
    if not tables or len(streams) != 1:
        return frozenset()
    stores = frozenset(tables.values())
    waiting = [(name, True) for name in streams[0].children]
    seen: set[tuple[str, bool]] = set()
    while waiting:
        name, own_key = waiting.pop()
        node = nodes[name]
        if (name, own_key) in seen or not isinstance(node, ProcessorNode):
            continue
        seen.add((name, own_key))
        operator: Any = node.operator
        if not stores.isdisjoint(node.stores) and not (
            own_key and isinstance(operator, StreamTableJoin) and operator.select is None
        ):
            return frozenset()
        kept = own_key and isinstance(operator, _KEEP_KEYS)
        waiting += [(child, kept) for child in node.children]
    return frozenset(tables)


def _table_of(source: SourceNode, nodes: Nodes, works: Mapping[str, NodeWork]) -> str | None:
    """Return the store of a source that only fills a table by key; None for another source."""
    node = nodes[source.children[0]] if len(source.children) == 1 else None
    if (
        not isinstance(node, ProcessorNode)
        or not isinstance(node.operator, TableSource)
        or node.operator.store is None
        or node.children
    ):
        return None
    store = works[node.name].store(node.operator.store)
    # A store of the user's own sees the order of its calls; keys that are not equal may be one row;
    # a versioned store forgets versions by the latest time of all keys.
    plain = isinstance(store, KeyValueBase) and store.codec.faithful and not store.codec.headed
    return node.operator.store if plain else None


class TableTurns:
    """Process a stream and the tables that it is joined with in runs.

    Kafka Streams takes the records of all in the order of time, so a table's record ends the
    stream's batch. But such a record concerns only the stream's records of its key. So it comes
    at any place between the stream's records of its key, and a run needs few places for all of
    them. Most often one is enough: the beginning.

    `tables` are the sources of the tables, and `batches` take the records of all sources.
    """

    def __init__(
        self,
        tables: frozenset[str],
        batches: Mapping[str, ProcessBatch | None],
        group: PartitionGroup,
        current: RecordContextHolder,
    ) -> None:
        self._group = group
        self._current = current
        self._queues = queues = tuple(group.queues.values())
        names = [queue.source.name for queue in queues]
        # Two partitions of one table have an order of their own.
        self._apart: bool = len(set(names)) == len(names) == len(batches)
        self._batches = [batches[name] for name in names]
        streams = [at for at, name in enumerate(names) if name not in tables]
        self._stream: int = streams[0] if streams else 0
        self._sampled: bool = False
        # The stream comes last in each part of a run.
        self._sequence = [*(at for at in range(len(queues)) if at != self._stream), self._stream]

    def sample(self, taps: EdgeTaps | None) -> None:
        """Take no records while there are samples: they pass the edges behind the sources."""
        self._sampled = taps is not None

    def take(self, limit: int) -> int:
        """Process up to about `limit` records of each queue; return how many.

        Returns 0 unless all queues have decoded records that are ready.
        """
        queues = self._queues
        if (
            self._sampled
            or not self._apart
            or len(self._group.queues) != len(queues)
            or any(queue.plain is None for queue in queues)
        ):
            return 0
        upcoming = [queue.upcoming(limit) for queue in queues]
        keys = [chunk.keys[start:stop] for chunk, start, stop in upcoming]
        # The heads are merged: a record waits for all records before it in its own queue.
        times = [
            list(accumulate(chunk.timestamps[start:stop], max)) for chunk, start, stop in upcoming
        ]
        # Another queue's next record may be the first one when a queue has no decoded record left.
        last, ending = min((column[-1], at) for at, column in enumerate(times))
        ends = [
            (bisect_right if at <= ending else bisect_left)(column, last)
            for at, column in enumerate(times)
        ]
        try:
            parts = list(self._parts(keys, times, ends))
        except TypeError:  # a key without a hash: its record fails in its turn
            return 0
        current = self._current
        done = [0] * len(queues)
        for part in parts:
            for at in self._sequence:
                if part[at] == done[at]:
                    continue
                queue, take = queues[at], self._batches[at]
                batch = queue.skip(upcoming[at][1] + part[at])
                done[at] = part[at]
                current.page, current.offset = queue.page, batch.offsets[0]
                current.stream_time = max(current.stream_time, queue.partition_time)
                assert take is not None
                take(batch)
        return sum(ends)

    def _parts(
        self, keys: Sequence[list[Any]], times: Sequence[list[int]], ends: list[int]
    ) -> Iterator[list[int]]:
        """Yield how many records of each queue have been taken at the end of each part."""
        stream = self._stream
        of_tables = sorted(
            (times[at][place], at, place) for at in self._sequence[:-1] for place in range(ends[at])
        )
        changed = {keys[at][place] for _, at, place in of_tables}
        places: dict[Any, list[int]] = {}
        for place, key in enumerate(keys[stream][: ends[stream]]):
            if key in changed:
                places.setdefault(key, []).append(place)
        # A table's record comes anywhere between the stream's records of its key before it and
        # behind it. As many as possible come at one place, and at the beginning if they can.
        part, earlier = [0] * len(ends), [0] * len(ends)
        low, high = 0, ends[stream]
        for time, at, place in of_tables:
            found = places.get(keys[at][place])
            if found is not None:
                before = (bisect_left if at < stream else bisect_right)(times[stream], time)
                behind = bisect_left(found, before)
                least = found[behind - 1] + 1 if behind else 0
                most = found[behind] if behind < len(found) else ends[stream]
                if least > high:
                    earlier[stream] = high if low else 0
                    yield earlier
                    earlier, low, high = list(part), least, most
                else:
                    low, high = max(low, least), min(high, most)
            part[at] = place + 1
        earlier[stream] = high if low else 0
        yield earlier
        yield ends
