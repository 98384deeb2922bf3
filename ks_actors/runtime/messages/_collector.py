"""Messages to the collector."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from actors import Message, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors.log import GroupMetadata, OffsetAndMetadata, Outgoing
    from ks_actors.records import TopicPartition


class Output(Message, frozen=True):
    """Records to write, in order per partition.

    Records of a later epoch are written after the commit. Records with an `output_id` are written
    with the commit that includes their task.
    """

    batches: Sequence[Outgoing]
    epoch: int
    output_id: int | None = None


class SendEnded(Message, frozen=True):
    """A send has ended (internal).

    If it had no batches, it was the end of a transaction.
    """

    batches: Sequence[Outgoing]
    ends: Sequence[int]


class SendFailed(Message, frozen=True):
    """A send failed (internal)."""

    batches: Sequence[Outgoing]
    error: Exception


class PartitionsKnown(Message, frozen=True):
    """The partition counts of topics, or the error of the lookup (internal)."""

    partitions: Mapping[str, int]
    error: Exception | None


class Written(NamedTuple):
    """The end offset of a partition after a write, and the records since a commit.

    `bytes` are the approximate bytes of their keys and values.
    """

    end: int
    records: int
    bytes: int = 0


class Flush(Message, frozen=True):
    """Write all output of `epoch` and of the `output_ids` of committed tasks.

    Answered with the partitions written to since the last commit.
    """

    reply: Reply[Mapping[TopicPartition, Written]]
    epoch: int
    output_ids: frozenset[int]


class KeepBatches(Message, frozen=True):
    """The output ids of the existing tasks.

    Discard output with any other id: their tasks were given up or restarted.
    """

    output_ids: frozenset[int]


class CommitTransaction(Message, frozen=True):
    """Commit the written records and the offsets."""

    reply: Reply[None]
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    group: GroupMetadata


class Abandon(Message, frozen=True):
    """Write nothing more until the next Abort: the next owner of the tasks may write by then.

    A flush under way fails with `cause`, which concerns nothing else; None if the membership is
    lost.
    """

    cause: Exception | None = None


class Abort(Message, frozen=True):
    """Discard all uncommitted output, of the current epoch and of all later epochs."""

    reply: Reply[None]
    epoch: int


class LingerOver(Message, frozen=True):
    """The linger time of small outputs is over (internal)."""


class NextEpoch(Message, frozen=True):
    """The commit is over: write the output that waited for it."""

    epoch: int


CollectorMessage: TypeAlias = (
    Output
    | SendEnded
    | SendFailed
    | PartitionsKnown
    | Flush
    | KeepBatches
    | CommitTransaction
    | Abandon
    | Abort
    | LingerOver
    | NextEpoch
)
