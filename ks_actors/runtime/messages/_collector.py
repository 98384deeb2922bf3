"""Messages to the collector."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from actors import Message, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors.log import GroupMetadata, OffsetAndMetadata, Outgoing
    from ks_actors.records import TopicPartition


class Output(Message, frozen=True):
    """Records to be written, in order per partition; of a later epoch after the commit, of a `lot` with the commit that takes their task."""

    batches: Sequence[Outgoing]
    epoch: int
    lot: int | None = None


class Sent(Message, frozen=True):
    """A send has ended (internal)."""

    batches: Sequence[Outgoing]
    ends: Sequence[int]


class SendFailed(Message, frozen=True):
    """A send has failed (internal)."""

    batches: Sequence[Outgoing]
    error: Exception


class Partitioned(Message, frozen=True):
    """The sizes of topics are known, or why they are not (internal)."""

    partitions: Mapping[str, int]
    error: Exception | None


class Flush(Message, frozen=True):
    """Write all of `epoch`, and of the `lots` of committed tasks; answered with the ends of the partitions written to since the last commit."""

    reply: Reply[Mapping[TopicPartition, int]]
    epoch: int
    lots: frozenset[int]


class KeepBatches(Message, frozen=True):
    """The lots of the tasks that there are: output kept for other lots is void, as its tasks were given up or begun anew."""

    lots: frozenset[int]


class CommitTransaction(Message, frozen=True):
    """Commit what was written, and the offsets."""

    reply: Reply[None]
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    group: GroupMetadata


class Abandon(Message, frozen=True):
    """Write nothing more: the membership is lost, and who has the tasks next may be writing already."""


class Abort(Message, frozen=True):
    """Forget what was not committed: of the current epoch and of all later ones."""

    reply: Reply[None]
    epoch: int


class Lingered(Message, frozen=True):
    """Output that has come little by little was gathered for as long as it is to be."""


class NextEpoch(Message, frozen=True):
    """The commit is over: what waited for it may be written."""

    epoch: int


CollectorMessage: TypeAlias = (
    Output | Sent | SendFailed | Partitioned | Flush | KeepBatches | CommitTransaction | Abandon | Abort | Lingered | NextEpoch
)
