"""The nodes of one task: subtopologies and copartition groups."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from ks_actors._errors import TopologyError
from ks_actors.topology._named_queries import REST, query_of
from ks_actors.topology._nodes import SinkNode, SourceNode
from ks_actors.topology._stores import StoreSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence

    from ks_actors.topology._nodes import InternalTopic, Node

T = TypeVar("T", bound="Hashable")

GROWN: Final = (
    "If a source topic has grown, keys of the new partitions have their state in old ones: stop "
    "all instances, and reset the application (`ks-actors reset` deletes its internal topics and "
    "state, and sets its offsets) to start over; or repartition upstream, into a topic with the "
    "old number of partitions, and read that one"
)
"""The remedy for internal topics that have another size than the topics before them."""


class Subtopology(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are connected by records or by stores.

    It has one task for every partition of its source topics. The app's own topics have their names
    without the application id: `repartition_topics` are those among `source_topics`. Topics of a
    copartition group have to have the same number of partitions. `source_patterns` match further
    source topics. `pattern_groups` are the names of sources with a pattern, and the topics that
    need as many partitions as the topics that match these patterns. `query` is the named query
    that it belongs to.
    """

    id: int
    nodes: tuple[str, ...]
    source_topics: tuple[str, ...]
    source_patterns: tuple[re.Pattern[str], ...]
    sink_topics: tuple[str, ...]
    repartition_topics: tuple[str, ...]
    stores: Mapping[str, StoreSpec]
    copartition_groups: tuple[frozenset[str], ...]
    pattern_groups: tuple[tuple[frozenset[str], frozenset[str]], ...] = ()
    query: str = REST


class Groups(Generic[T]):
    """Disjoint sets (union-find)."""

    def __init__(self) -> None:
        self._above: dict[T, T] = {}

    def add(self, thing: T) -> None:
        """Add an item in a group of its own."""
        self._above.setdefault(thing, thing)

    def unite(self, first: T, *others: T) -> None:
        """Merge the groups of these items; unknown items are added."""
        self.add(first)
        for other in others:
            self.add(other)
            self._above[self._find(other)] = self._find(first)

    def _find(self, thing: T) -> T:
        above = self._above
        # Halve the path, which keeps later look-ups short.
        while above[thing] != thing:
            above[thing] = above[above[thing]]
            thing = above[thing]
        return thing

    def __iter__(self) -> Iterator[list[T]]:
        groups: dict[T, list[T]] = {}
        for thing in self._above:
            groups.setdefault(self._find(thing), []).append(thing)
        return iter(groups.values())


def copartition_groups(
    groups: Iterable[frozenset[str]], nodes: Mapping[str, Node]
) -> tuple[frozenset[str], ...]:
    """Return the groups of topics that must have the same number of partitions.

    `groups` are groups of source nodes; groups that share a topic are merged.
    """
    together: Groups[str] = Groups()
    for group in groups:
        topics = [
            topic
            for name in sorted(group)
            if isinstance(node := nodes.get(name), SourceNode)
            for topic in node.topics
        ]
        if topics:
            together.unite(*topics)
    return tuple(frozenset(topics) for topics in together if len(topics) > 1)


def pattern_groups(
    groups: Iterable[frozenset[str]], nodes: Mapping[str, Node]
) -> tuple[tuple[frozenset[str], frozenset[str]], ...]:
    """Return the sources with a pattern, and the topics, of each group that has patterns."""
    found: list[tuple[frozenset[str], frozenset[str]]] = []
    for group in groups:
        sources = [node for name in group if isinstance(node := nodes.get(name), SourceNode)]
        patterned = frozenset(node.name for node in sources if node.pattern is not None)
        if patterned:
            found.append((patterned, frozenset(topic for node in sources for topic in node.topics)))
    return tuple(found)


def subtopology(
    number: int,
    names: Collection[str],
    nodes: Mapping[str, Node],
    stores: Mapping[str, StoreSpec],
    internal: Mapping[str, InternalTopic],
    copartitioned: Iterable[frozenset[str]],
    patterned: Iterable[tuple[frozenset[str], frozenset[str]]],
    queries: Mapping[str, str],
) -> Subtopology:
    """Return the subtopology of these nodes."""
    members = [nodes[name] for name in names]
    sources = [node for node in members if isinstance(node, SourceNode)]
    source_topics = tuple(topic for node in sources for topic in node.topics)
    connected = (
        store
        for node in members
        if not isinstance(node, SourceNode | SinkNode)
        for store in node.stores
    )
    return Subtopology(
        id=number,
        nodes=tuple(node.name for node in members),
        source_topics=source_topics,
        source_patterns=tuple(node.pattern for node in sources if node.pattern is not None),
        sink_topics=tuple(
            dict.fromkeys(
                node.topic
                for node in members
                if isinstance(node, SinkNode) and isinstance(node.topic, str)
            )
        ),
        repartition_topics=tuple(topic for topic in source_topics if topic in internal),
        stores={store: stores[store] for store in connected},
        copartition_groups=tuple(
            group for group in copartitioned if not group.isdisjoint(source_topics)
        ),
        pattern_groups=tuple(
            (sources, topics)
            for sources, topics in patterned
            if not sources.isdisjoint(node.name for node in members)
        ),
        query=query_of(number, names, queries),
    )


def check_topics(parts: Sequence[Subtopology], internal: Collection[str]) -> None:
    """Raise TopologyError for an internal topic between two queries."""
    readers = {topic: each for each in parts for topic in each.source_topics}
    for part in parts:
        for topic in part.sink_topics:
            reader = readers.get(topic)
            if topic in internal and reader is not None and reader.query != part.query:
                raise TopologyError(
                    f"query {part.query} writes the internal topic {topic}, and query "
                    f"{reader.query} reads it: continue the stream inside the query, or send the "
                    "records to the other query through a topic of your own (to, and stream)"
                )
