"""The stores of global tables: what is on disk of them, and from where on their topics are to be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgspec

from ks_actors._errors import TaskCorrupted
from ks_actors.records import TopicPartition
from ks_actors.state import CustomStore
from ks_actors.task import GLOBAL, RecordContextHolder, make_stores
from ks_actors.task.calls import needs_thread
from ks_actors.topology import StoreKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ks_actors.log import IsolationLevel, Log
    from ks_actors.state import SharedResources, TaskStores
    from ks_actors.task import Environment


@final
class GlobalStores:
    """The global stores of an instance, as they are opened: those of type rocksdb with what an earlier run has left, the others empty.

    The topic of each is its changelog, so its position tells from where on that is to be read: it is written with the data, never ahead of it. Where
    a position is not in the topic, as that was made anew or cut off, or is one of another topic, that store is given up, and filled from the
    beginning. Where tasks are processed in
    threads, and where a store is the user's own, all are in memory: threads read them while others write.
    """

    def __init__(self, setup: Environment, directory: Path, shared: SharedResources) -> None:
        specs = setup.store_specs(setup.topology.global_stores)
        self._on_disk = not any(map(needs_thread, setup.topology.nodes.values())) and all(spec.kind is not StoreKind.CUSTOM for spec in specs)
        self.current: RecordContextHolder = RecordContextHolder()
        self.begins: Mapping[TopicPartition, int] = {}
        self.ends: Mapping[TopicPartition, int] = {}
        self.topics: dict[str, tuple[TopicPartition, ...]] = {
            keeper.store: tuple(TopicPartition(topic, number) for number in range(setup.partitions(topic) or 0))
            for topic, keeper in setup.topology.global_topics.items()
        }
        stores = make_stores(
            GLOBAL,
            [msgspec.structs.replace(spec, logging=True) for spec in specs] if self._on_disk else specs,
            directory=directory if self._on_disk else None,
            shared=shared if self._on_disk else None,
            current=self.current,
            expired=lambda _: None,  # which nobody counts
            topics={},
            assigned=False,
        )
        assert stores is not None
        self.stores: TaskStores = stores

    async def look(self, log: Log, isolation: IsolationLevel) -> None:
        """Find out how far the topics go now. Raises what the log does."""
        partitions = [partition for own in self.topics.values() for partition in own]
        self.begins = await log.begin_offsets(partitions)
        self.ends = await log.end_offsets(partitions, isolation)

    def open(self) -> None:
        """Open them, and find out from where on to read; to be done when the topics have been looked at. Raises what stores do. Blocks."""
        stores = self.stores
        try:
            stores.open()
        except TaskCorrupted as error:
            stores.give_up(str(error))
            stores.open()
        if unfit := self._unfit():
            stores.close(clean=False)
            stores.unfit = unfit
            stores.open()
        self.begins = {**self.begins, **self._reached()}

    def _reached(self) -> dict[TopicPartition, int]:
        """Return the next offsets of what is on disk."""
        found: dict[TopicPartition, int] = {}
        for store, partitions in self.topics.items():
            at = self.stores.positions.of(store)
            found |= {partition: at[partition] + 1 for partition in partitions if partition in at}
        return found

    def _unfit(self) -> dict[str, str]:
        """Return the stores of which a position is not in their topics, each with the reason."""
        found: dict[str, str] = {}
        for store, partitions in self.topics.items():
            at = self.stores.positions.of(store)
            # It is told with each change of a store how far all topics were; a store has changed by records of its own one.
            if at and at.keys().isdisjoint(partitions):
                found[store] = f"it was filled from another topic than {partitions[0].topic if partitions else 'any that there is'}"
            for partition in partitions:
                begin, end = self.begins[partition], self.ends[partition]
                if partition in at and not begin <= at[partition] + 1 <= end:
                    found[store] = f"it goes up to offset {at[partition] + 1} of {partition}, which has {begin} to {end}"
        return found

    def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Have stores of the user's own commit, each with the positions of its topic."""
        for store, partitions in self.topics.items():
            if isinstance(kept := self.stores.kept(store), CustomStore):
                kept.user.commit({partition: positions[partition] for partition in partitions if partition in positions})

    def offsets(self, positions: Mapping[TopicPartition, int]) -> dict[str, int]:
        """Return how far each store is, in one number."""
        return {store: sum(positions[partition] for partition in partitions) for store, partitions in self.topics.items()} if self._on_disk else {}

    def close(self, *, clean: bool) -> None:
        """Close them. Blocks."""
        self.stores.close(clean=clean)
