"""The content of one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.log import OffsetAndMetadata
    from ks_actors.records import TaskId, TopicPartition
    from ks_actors.state import Token
    from ks_actors.task._task import Task


class Frozen(msgspec.Struct, frozen=True):
    """The content of one commit: positions by partition, store tokens by task, and the tasks.

    `left_out` are the tasks that have calls in flight.
    """

    positions: Mapping[TopicPartition, OffsetAndMetadata]
    tokens: Mapping[TaskId, Token]
    tasks: Mapping[TaskId, Task]
    left_out: frozenset[TaskId] = frozenset()
