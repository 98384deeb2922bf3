"""The stores of global tables, and the start positions in their topics."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

import msgspec

from ks_actors._errors import TaskCorrupted
from ks_actors.records import TopicPartition
from ks_actors.state import CustomStore
from ks_actors.task import GLOBAL, RecordContextHolder, make_stores
from ks_actors.task.calls import needs_thread
from ks_actors.topology import StoreKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from ks_actors.log import IsolationLevel, Log
    from ks_actors.state import SharedResources, TaskStores
    from ks_actors.task import AppTopics, StoreSpecs


@final
class GlobalStores:
    """The global stores of an instance.

    Stores of type rocksdb open with the state of an earlier run, the others empty. Each store's
    topic is its changelog. Its position is stored with the data, is never ahead of the data, and
    says where to resume the topic. If a store's position does not fit the topic, the store is
    discarded and filled from the beginning. That happens if the topic was recreated or truncated,
    or the position belongs to another topic. All stores are in memory if tasks are processed in
    threads, or if any store is a custom store, because threads read the stores while other code
    writes them.
    """

    def __init__(
        self, topics: AppTopics, stores: StoreSpecs, directory: Path, shared: SharedResources
    ) -> None:
        topology = topics.topology
        specs = stores.complete(topology.global_stores)
        self._on_disk = not any(map(needs_thread, topology.nodes.values())) and all(
            spec.kind is not StoreKind.CUSTOM for spec in specs
        )
        self.current: RecordContextHolder = RecordContextHolder()
        self.begins: Mapping[TopicPartition, int] = {}
        self.ends: Mapping[TopicPartition, int] = {}
        self.find_ends: Callable[[], Awaitable[Mapping[TopicPartition, int]]]
        self.topics: dict[str, tuple[TopicPartition, ...]] = {
            keeper.store: tuple(
                TopicPartition(topic, number) for number in range(topics.partitions(topic) or 0)
            )
            for topic, keeper in topology.global_topics.items()
        }
        made = make_stores(
            GLOBAL,
            [msgspec.structs.replace(spec, logging=True) for spec in specs]
            if self._on_disk
            else specs,
            directory=directory if self._on_disk else None,
            # In a database of its own: it stays open while all tasks close after an error.
            shared=shared.apart() if self._on_disk else None,
            current=self.current,
            expired=lambda _: None,  # not counted
            topics={},
            assigned=False,
            topic_ids={
                topic: topics.topic_ids[topic]
                for topic in topology.global_topics
                if topic in topics.topic_ids
            },
            filled_from={keeper.store: topic for topic, keeper in topology.global_topics.items()},
        )
        assert made is not None
        self.stores: TaskStores = made

    async def fetch_offsets(self, log: Log, isolation: IsolationLevel) -> None:
        """Look up the current offsets of the topics. Raises the log's errors."""
        partitions = [partition for own in self.topics.values() for partition in own]
        self.begins = await log.begin_offsets(partitions)
        self.find_ends = partial(log.end_offsets, partitions, isolation)
        self.ends = await self.find_ends()

    def open(self) -> None:
        """Open the stores and set the start positions; call `fetch_offsets` first. Blocks.

        Raises errors of the stores.
        """
        stores = self.stores
        try:
            stores.open()
        except TaskCorrupted as error:
            stores.give_up(str(error))
            stores.open()
        # Checked after the opening: only then the positions on disk are known.
        if unfit := self._unfit():
            # Their positions are wrong, so they must not be written as if they were fine.
            stores.close(clean=False)
            stores.unfit = unfit
            stores.open()
        self.begins = {**self.begins, **self._reached()}

    def _reached(self) -> dict[TopicPartition, int]:
        """Return the next offsets of the state on disk."""
        found: dict[TopicPartition, int] = {}
        for store, partitions in self.topics.items():
            at = self.stores.positions.of(store)
            found |= {partition: at[partition] + 1 for partition in partitions if partition in at}
        return found

    def _unfit(self) -> dict[str, str]:
        """Return the stores with positions that do not fit their topics, each with the reason."""
        found: dict[str, str] = {}
        for store, partitions in self.topics.items():
            at = self.stores.positions.of(store)
            # Each change of a store records the positions of all topics, so a changed store knows a
            # position of its own topic.
            if at and at.keys().isdisjoint(partitions):
                found[store] = (
                    f"it was filled from {_former(at, self.topics) or 'another topic'}, and not "
                    f"from {partitions[0].topic if partitions else 'any that exists'}"
                )
            for partition in partitions:
                begin, end = self.begins[partition], self.ends[partition]
                if partition in at and not begin <= at[partition] + 1 <= end:
                    found[store] = (
                        f"it holds records up to offset {at[partition] + 1} of {partition}, which "
                        f"has offsets {begin} to {end}"
                    )
        return found

    def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit custom stores, each with the positions of its topic."""
        for store, partitions in self.topics.items():
            if isinstance(kept := self.stores.kept(store), CustomStore):
                kept.user.commit(
                    {
                        partition: positions[partition]
                        for partition in partitions
                        if partition in positions
                    }
                )

    def offsets(self, positions: Mapping[TopicPartition, int]) -> dict[str, int]:
        """Return the sum of each store's positions; empty if the stores are in memory."""
        return (
            {
                store: sum(positions[partition] for partition in partitions)
                for store, partitions in self.topics.items()
            }
            if self._on_disk
            else {}
        )

    def close(self, *, clean: bool) -> None:
        """Close the stores. Blocks."""
        self.stores.close(clean=clean)

    def discard(self, reasons: Mapping[TopicPartition, str]) -> None:
        """Delete the state on disk of stores whose topics no longer fit it. Blocks.

        Call it after `close`. `reasons` are by partition of the topics.
        """
        if not self._on_disk:
            return
        self.stores.unfit = {
            store: reasons[partition]
            for store, partitions in self.topics.items()
            for partition in partitions
            if partition in reasons
        }
        self.stores.open()
        self.stores.close(clean=False)


def _former(at: Iterable[tuple[str, int]], topics: Mapping[str, Sequence[TopicPartition]]) -> str:
    """Return the topics of positions that no store reads any more."""
    now = {each.topic for partitions in topics.values() for each in partitions}
    return ", ".join(sorted({topic for topic, _ in at} - now))
