"""Start positions for state that outlived the group's committed offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors.lifecycle import component_log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.records import TopicPartition
    from ks_actors.runtime.stores._store_entry import StoreEntry
    from ks_actors.task import Position

_REMEDY = (
    "To start over, close all instances and run `ks-actors reset`; to keep the state, commit the "
    "group's offsets before the start. Brokers keep offsets for offsets.retention.minutes after a "
    "group's last member has left"
)
_log = component_log(__name__)


def continued(
    entry: StoreEntry, begun: Mapping[TopicPartition, Position], *, exact: bool
) -> Mapping[TopicPartition, Position]:
    """Return the start positions of a task with open, restored stores.

    This concerns partitions without a committed offset, where `begun` follows `auto_offset_reset`.
    The task must not process records again that its stores already contain. With exactly-once
    writes (`exact`), the task resumes after the last record of the partition that the stores
    include. With at-least-once, stores may be ahead of the output, so that records are processed
    twice rather than left out. The stores' positions in a former topic of the same name mean
    nothing. A warning describes the finding and the decision.
    """
    fresh = [partition for partition, position in begun.items() if position.fresh]
    stores = entry.stores
    changed = sorted(one for one in fresh if one.topic in stores.topic_ids.others)
    if changed:
        _log.warning(
            "task %s starts with %s, as auto_offset_reset says, because the topic was deleted and "
            "created again, or is in another cluster. The stores keep the results of its former "
            "records. %s",
            entry.task,
            ", ".join(f"{partition} at offset {begun[partition].offset}" for partition in changed),
            _REMEDY,
        )
        fresh = [partition for partition in fresh if partition not in changed]
    if not fresh:
        return begun
    known: dict[TopicPartition, int] = {}
    for name in stores.logged:
        for (topic, number), offset in stores.positions.of(name).items():
            for partition in fresh:
                if (topic, number) == tuple(partition):
                    known[partition] = max(offset + 1, known.get(partition, 0))
    found = dict(begun)
    for partition in fresh:
        at, there = begun[partition].offset, known.get(partition)
        if there is None or there == at:
            continue
        if exact:
            found[partition] = begun[partition]._replace(offset=there)
            done = f"continuing at offset {there}"
            if any(entry.restored.values()):
                done += "; records behind the stores' last commit on disk may be processed twice"
        else:
            done = (
                f"starting at offset {at}, as auto_offset_reset says: records are processed twice "
                "or skipped"
            )
        _log.warning(
            "the group has no committed offset of %s, but the stores of task %s contain its "
            "records up to offset %d, and auto_offset_reset leads to offset %d: %s. %s",
            partition,
            entry.task,
            there,
            at,
            done,
            _REMEDY,
        )
    # A changelog may have an end but no records, for example after an aborted transaction.
    has_state = bool(entry.offsets) or any(entry.restored.values())
    if (
        not known
        and has_state
        and len(fresh) == len(begun)
        and any(stores.next_offset(name) for name in stores.logged)
    ):
        _log.warning(
            "the group has no committed offsets of task %s, but its stores have state without "
            "known positions: it starts with %s, and records that the state already contains are "
            "processed twice. %s",
            entry.task,
            ", ".join(
                f"{partition} at offset {begun[partition].offset}" for partition in sorted(fresh)
            ),
            _REMEDY,
        )
    return found
