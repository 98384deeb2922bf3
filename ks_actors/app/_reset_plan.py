"""The plan of a reset, made without changing anything."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, final

import msgspec

from ks_actors._errors import ResetRefused
from ks_actors.config import ShiftBy, clamped, milliseconds
from ks_actors.lifecycle import run_in_thread
from ks_actors.log import IsolationLevel
from ks_actors.records import TopicPartition
from ks_actors.snapshots import find_snapshots, without_login
from ks_actors.task import is_own_internal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ks_actors.config import ResetTo, StreamsConfig
    from ks_actors.log import GroupMember, Log, ManagesGroups, OffsetAndMetadata
    from ks_actors.topology import Topology


class ResetOffset(msgspec.Struct, frozen=True):
    """The new offset of a partition, `after`.

    `before` is the committed offset, None without any. `note` says how the requested offset was
    made to fit.
    """

    partition: TopicPartition
    before: int | None
    after: int
    note: str = ""


class ResetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of `reset`, in order, and the parts that stay.

    First `members` are removed, then the state on this machine is deleted (`state_directory`, None
    without any), then `snapshots`, then `internal_topics`; last the group gets all `offsets` at
    once. `left` has a sentence for each part of the application that stays. `executed` tells
    whether the plan was carried out.
    """

    application_id: str
    members: tuple[str, ...] = ()
    state_directory: Path | None = None
    snapshots: tuple[str, ...] = ()
    internal_topics: tuple[str, ...] = ()
    offsets: tuple[ResetOffset, ...] = ()
    left: tuple[str, ...] = ()
    executed: bool = False


@final
class Planner:
    """Find the topics, snapshots and offsets that a reset changes."""

    def __init__(
        self,
        config: StreamsConfig,
        topology: Topology | None,
        log: Log,
        groups: ManagesGroups,
        wall_time: Callable[[], int],
    ) -> None:
        self._config = config
        self._id: str = config.application_id
        self._topology = topology
        self._log = log
        self._groups = groups
        self._wall_time = wall_time
        self._left: list[str] = []

    async def plan(
        self,
        members: Sequence[GroupMember],
        directory: Path | None,
        input_topics: Collection[str] | None,
        internal: Collection[str] | None,
        to: ResetTo,
    ) -> ResetPlan:
        """Return the plan.

        Raises ResetRefused for missing topics and offsets, and for topics that may belong to
        another application.
        """
        existing = await self._existing(input_topics, internal)
        committed = await self._groups.group_offsets(self._id)
        inputs = self._inputs(input_topics, existing, committed)
        topics = await self._internal_topics(internal, existing, inputs)
        partitions = [
            TopicPartition(topic, number) for topic in inputs for number in range(existing[topic])
        ]
        offsets = await self._offsets(partitions, committed, to)
        self._note_left(existing, inputs, topics, committed, named=internal is not None)
        return ResetPlan(
            application_id=self._id,
            members=tuple(map(str, members)),
            state_directory=directory,
            snapshots=await self._snapshots(),
            internal_topics=tuple(topics),
            offsets=tuple(offsets),
            left=tuple(self._left),
        )

    # --- topics -----------------------------------------------------------------------------------

    async def _existing(
        self, inputs: Collection[str] | None, internal: Collection[str] | None
    ) -> dict[str, int]:
        """Return the partition counts of all topics.

        Topics of the topology, and those that the user names, are looked up by name if the listing
        lacks them: a broker may not know a new topic yet, and a changelog that is not deleted would
        be restored.
        """
        listed = await self._log.describe_topics(configs=False)
        named = {*self._names_of_topology(), *(inputs or ()), *(internal or ())}
        if self._topology is not None:
            sources = {
                topic for each in self._topology.subtopologies() for topic in each.source_topics
            }
            named |= sources - self._topology.internal_topics.keys()
        lacking = named - listed.keys()
        found = await self._log.describe_topics(lacking, configs=False) if lacking else {}
        return {name: topic.partitions for name, topic in {**listed, **found}.items()}

    def _inputs(
        self,
        wanted: Collection[str] | None,
        existing: Mapping[str, int],
        committed: Iterable[TopicPartition],
    ) -> list[str]:
        """Return the topics that get new offsets.

        These are the given topics, else those that the topology reads, else those with a commit.
        """
        read = None if self._topology is None else self._read_by(self._topology, existing)
        if wanted is None:
            found = (
                {
                    each.topic
                    for each in committed
                    if each.topic in existing and not self._is_internal(each.topic)
                }
                if read is None
                else read
            )
        else:
            found = set(wanted)
            foreign = [] if read is None else sorted(found - read)
            if foreign:
                raise ResetRefused(
                    f"the topology does not read topics {', '.join(foreign)} from the group's "
                    "offsets: name topics that it reads"
                )
        missing = sorted(found - existing.keys())
        if missing:
            raise ResetRefused(
                f"topics {', '.join(missing)} do not exist, so their offsets cannot be set; "
                "nothing has changed. Name input topics that exist (--input-topics)"
            )
        return sorted(found)

    @staticmethod
    def _read_by(topology: Topology, existing: Iterable[str]) -> set[str]:
        found: set[str] = set()
        for subtopology in topology.subtopologies():
            found.update(
                topic
                for topic in subtopology.source_topics
                if topic not in topology.internal_topics
            )
            found.update(
                topic
                for topic in existing
                for pattern in subtopology.source_patterns
                if pattern.fullmatch(topic)
            )
        # A global table has no committed offsets: every start reads it from the beginning.
        return found - topology.global_topics.keys()

    def _is_internal(self, topic: str) -> bool:
        return is_own_internal(topic, self._id)

    async def _internal_topics(
        self, wanted: Collection[str] | None, existing: Mapping[str, int], inputs: Collection[str]
    ) -> list[str]:
        """Return the topics to delete: those of the topology, or those that the user names.

        Without a topology, these are all topics whose names begin with this application's id. Such
        a name may also begin with another application's id: if that application has a group, the
        topic may belong to it.
        """
        named = self._names_of_topology()
        found = {
            topic
            for topic in existing
            if (topic in named or self._is_internal(topic)) and topic not in inputs
        }
        if wanted is not None:
            wrong = sorted(set(wanted) - found)
            if wrong:
                there = ", ".join(sorted(found)) or "none"
                raise ResetRefused(
                    f"topics {', '.join(wrong)} are not internal topics of application {self._id}; "
                    f"nothing has changed. Its internal topics: {there}"
                )
            return sorted(set(wanted))
        if self._topology is not None:
            return sorted(found & named)
        others = [
            group for group in await self._groups.group_ids() if group.startswith(f"{self._id}-")
        ]
        unclear = sorted(
            topic for topic in found if any(topic.startswith(f"{other}-") for other in others)
        )
        if unclear:
            raise ResetRefused(
                f"topics {', '.join(unclear)} may belong to another application, because the "
                f"groups {', '.join(others)} exist; nothing has changed. Name the internal topics "
                f"of {self._id} (--internal-topics, or internal_topics)"
            )
        return sorted(found)

    def _names_of_topology(self) -> set[str]:
        if self._topology is None:
            return set()
        stores = (
            spec.name
            for spec in self._topology.stores.values()
            if spec.logging and spec.source_topic is None
        )
        return {
            f"{self._id}-{name}"
            for name in (
                *self._topology.internal_topics,
                *(f"{store}-changelog" for store in stores),
            )
        }

    def _note_left(
        self,
        existing: Iterable[str],
        inputs: Collection[str],
        deleted: Collection[str],
        committed: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        named: bool,
    ) -> None:
        letters = self._config.errors_dead_letter_queue_topic_name
        for topic in sorted(existing):
            if topic in deleted or topic in inputs:
                continue
            if topic == letters:
                self._left.append(f"topic {topic}: dead letters stay")
            elif self._is_internal(topic):
                which = "named internal topics" if named else "topology's internal topics"
                self._left.append(f"topic {topic}: it is not among the {which}")
            elif topic.startswith(f"{self._id}-"):
                self._left.append(f"topic {topic}: it is not an internal topic")
        for topic in sorted({each.topic for each in committed} - set(deleted) - set(inputs)):
            self._left.append(
                f"committed offsets of topic {topic}: it is not among the input topics"
            )

    # --- offsets ----------------------------------------------------------------------------------

    async def _offsets(
        self,
        partitions: Sequence[TopicPartition],
        committed: Mapping[TopicPartition, OffsetAndMetadata],
        to: ResetTo,
    ) -> list[ResetOffset]:
        if not partitions:
            return []
        begins = await self._log.begin_offsets(partitions)
        # The end of everything written, as the consumer of Kafka's own tool sees it.
        ends = await self._log.end_offsets(partitions, IsolationLevel.READ_UNCOMMITTED)
        before = {
            partition: committed[partition].offset
            for partition in partitions
            if partition in committed
        }
        wanted: Mapping[TopicPartition, int]
        if isinstance(to, str):
            wanted = begins if to == "earliest" else ends
        elif isinstance(to, int):
            wanted = dict.fromkeys(partitions, to)
        elif isinstance(to, ShiftBy):
            wanted = {
                partition: before.get(partition, ends[partition]) + to.offsets
                for partition in partitions
            }
        elif isinstance(to, datetime | timedelta):
            wanted = await self._log.offsets_for_times(
                dict.fromkeys(partitions, milliseconds(to, self._wall_time()))
            )
        else:
            wanted = self._by_partition(partitions, to)
        found = []
        for partition in partitions:
            offset, note = clamped(partition, wanted[partition], begins[partition], ends[partition])
            if isinstance(to, ShiftBy) and partition not in before:
                note = (
                    "no offset is committed, so the shift counts from the "
                    f"end{'; ' if note else ''}{note}"
                )
            found.append(ResetOffset(partition, before.get(partition), offset, note))
        return found

    def _by_partition(
        self, partitions: Sequence[TopicPartition], to: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        given = {TopicPartition(*partition): offset for partition, offset in to.items()}
        missing = [str(partition) for partition in partitions if partition not in given]
        foreign = [str(partition) for partition in given if partition not in partitions]
        if missing or foreign:
            problems = [f"offsets are missing for {', '.join(missing)}"] if missing else []
            problems += (
                [
                    (
                        f"offsets are given for {', '.join(foreign)}, which are not "
                        "among the input topics"
                    )
                ]
                if foreign
                else []
            )
            raise ResetRefused(
                f"the offsets by partition do not match the input topics: {'; '.join(problems)}; "
                "nothing has changed"
            )
        return given

    # --- snapshots --------------------------------------------------------------------------------

    async def _snapshots(self) -> tuple[str, ...]:
        """Return the snapshots that record changelog offsets: a reset makes these invalid.

        A snapshot of a backfill records none.
        """
        uri = self._config.snapshot_uri
        if uri is None:
            return ()
        try:
            found, refused = await run_in_thread(partial(find_snapshots, uri, self._id))
        except OSError as error:
            raise ResetRefused(
                without_login(
                    f"could not list the snapshots at {uri}: {error}; nothing has changed"
                )
            ) from error
        gone = []
        for snapshot in found:
            stores = [
                stored
                for task in snapshot.manifest.tasks.values()
                for stored in task.stores.values()
            ]
            if any(stored.next_offset is not None for stored in stores):
                gone.append(str(snapshot.place))
            else:
                self._left.append(f"snapshot {snapshot.place}: it is of a backfill, for App.seed")
        self._left += [f"a snapshot that cannot be read: {error}" for error in refused]
        return tuple(gone)
