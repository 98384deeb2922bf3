"""Checks of a snapshot against a topology, and the offsets that a bootstrap commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ks_actors._errors import SnapshotRefused
from ks_actors.log import OffsetAndMetadata
from ks_actors.records import TaskId, TopicPartition
from ks_actors.runtime.snapshots._snapshot_files import shape_of
from ks_actors.snapshots import Place, SnapshotReader, find_snapshots
from ks_actors.task import encode_position

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors.task import AppTopics, StoreSpecs
    from ks_actors.topology import StoreSpec

_UNKNOWN_TIME = -1
_LACKING = {
    "custom": (
        "a custom store: write the latest records of its changelog into a snapshot of kind custom"
    ),
    "in_threads": "in memory, of a task that is processed in threads: keep the store in RocksDB",
    "no_changelog": "it had no changelog",
}


def choose_snapshot(uri: str, application_id: str) -> SnapshotReader:
    """Return the snapshot at a place, or the application's newest snapshot below it. Blocks.

    Raises SnapshotRefused if there is none.
    """
    place = Place.of(uri)
    if place.at("manifest.json").read() is not None:
        return SnapshotReader.open(place, application_id=application_id)
    found, refused = find_snapshots(place, application_id)
    if not found:
        reasons = "".join(f"; {error}" for error in refused)
        raise SnapshotRefused(
            f"{place} has no complete snapshot of application {application_id}{reasons}"
        )
    return found[0]


@final
class BootstrapPlan:
    """The tasks, stores and offsets of a bootstrap.

    Raises SnapshotRefused when the snapshot lacks a part of the topology, or has another part.
    """

    def __init__(self, topics: AppTopics, stores: StoreSpecs, snapshot: SnapshotReader) -> None:
        if topics.grouping.custom:
            raise SnapshotRefused(
                f"{snapshot.place} cannot be loaded: an app with a partition grouper "
                f"({topics.grouping.name!r}) takes no state of other apps, which may have grouped "
                "partitions into other tasks"
            )
        self._topics = topics
        self._stores = stores
        self.snapshot = snapshot
        self.tasks: list[TaskId] = self._tasks()
        self.sources: list[TopicPartition] = [
            TopicPartition(topic, number)
            for topic in topics.source_topics
            for number in range(topics.partitions(topic) or 0)
        ]
        self._check_stores()

    def _tasks(self) -> list[TaskId]:
        counts = {
            number: max((self._topics.partitions(topic) or 0 for topic in topics), default=0)
            for number, topics in self._topics.subtopology_topics().items()
        }
        return [
            TaskId(number, partition)
            for number, count in sorted(counts.items())
            for partition in range(count)
        ]

    def specs(self, task: TaskId) -> list[StoreSpec]:
        """Return the stores of a task that the bootstrap fills."""
        return [spec for spec in self._stores.of_task(task) if spec.logging]

    def all_specs(self, task: TaskId) -> Sequence[StoreSpec]:
        """Return all stores of a task, also those that the bootstrap does not fill."""
        return self._stores.by_subtopology[task.subtopology]

    def _check_stores(self) -> None:
        place, tasks = self.snapshot.place, self.snapshot.manifest.tasks
        known = {str(task) for task in self.tasks}
        if unknown := sorted(tasks.keys() - known):
            raise SnapshotRefused(
                f"{place} has tasks that this topology does not have: {', '.join(unknown)}"
            )
        for task in self.tasks:
            specs = {spec.name: spec for spec in self.specs(task)}
            stores = tasks[str(task)].stores if str(task) in tasks else {}
            lacking = tasks[str(task)].left_out if str(task) in tasks else {}
            if listed := sorted(
                f"{name} ({_LACKING[lacking[name]]})"
                for name in specs.keys() - stores.keys()
                if name in lacking
            ):
                raise SnapshotRefused(
                    f"{place} was taken without some stores of task {task}, so their state cannot "
                    f"be loaded: {', '.join(listed)}"
                )
            if specs.keys() != stores.keys():
                raise SnapshotRefused(
                    f"{place}: task {task} has stores {', '.join(sorted(stores)) or 'none'}; this "
                    f"topology has {', '.join(sorted(specs)) or 'none'}"
                )
            for name, spec in specs.items():
                if stores[name].shape != shape_of(spec):
                    raise SnapshotRefused(
                        f"{place}: store {name} of task {task} was {stores[name].shape} and is "
                        f"{shape_of(spec)} now"
                    )

    def changelog(self, task: TaskId, spec: StoreSpec) -> TopicPartition:
        """Return the changelog partition of a store."""
        return TopicPartition(self._topics.changelog(spec.name), task.partition)

    def offsets(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets for the group to commit: the next offset of each partition read.

        `ranges` has the first and the end offset of each of these partitions. Records that wait in
        repartition topics belong to no snapshot and are skipped. Raises SnapshotRefused when
        positions are missing, unknown or out of range.
        """
        listed = {
            TopicPartition(position.topic, position.partition): position
            for task in self.snapshot.manifest.tasks.values()
            for position in task.positions
        }
        place, found = self.snapshot.place, dict[TopicPartition, OffsetAndMetadata]()
        if unknown := sorted(listed.keys() - set(self.sources)):
            raise SnapshotRefused(
                f"{place} has positions of partitions that this topology does not read: "
                f"{', '.join(map(str, unknown))}"
            )
        internal = {self._topics.topic(name) for name in self._topics.topology.internal_topics}
        for partition in self.sources:
            begin, end = ranges[partition]
            position = listed.get(partition)
            if position is None and partition.topic not in internal:
                raise SnapshotRefused(
                    f"{place} has no position for {partition}, which this topology reads"
                )
            offset = end if position is None else position.offset
            if not begin <= offset <= end:
                raise SnapshotRefused(
                    f"{place} continues at offset {offset} of {partition}, which has offsets "
                    f"{begin} to {end}"
                )
            metadata = "" if position is None else position.metadata
            found[partition] = (
                OffsetAndMetadata(offset, metadata)
                if metadata
                else encode_position(offset, _UNKNOWN_TIME, {})
            )
        return found
