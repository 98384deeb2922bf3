"""The poller's answer about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.records import TaskId, TopicPartition


class PollerStatus(NamedTuple):
    """The group membership and the input of an instance at one moment.

    `member_id` is None before the instance has joined its group. Stores of `pending` tasks are
    being opened or restored. Fetching of `stopped` partitions waits for room in the input buffer.
    """

    member_id: str | None
    generation: int
    tasks: Mapping[TaskId, tuple[TopicPartition, ...]]
    pending: frozenset[TaskId]
    stopped: frozenset[TopicPartition]
