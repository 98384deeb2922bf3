"""Requests to a log, and its responses."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

import msgspec

from ks_actors.records import Batch, TopicPartition


class OffsetAndMetadata(msgspec.Struct, frozen=True):
    """The next offset to read, and a short text committed with it."""

    offset: int
    metadata: str = ""


class TransactionScope(msgspec.Struct, frozen=True, kw_only=True):
    """The possible content of transactions.

    Transactions have records of `topics`, and offsets that the group commits for its `sources`.
    """

    topics: frozenset[str] = frozenset()
    group_id: str = ""
    sources: frozenset[str] = frozenset()


class Outage(NamedTuple):
    """A broker that does not answer, or answers fetches with errors only (`refused`).

    `seconds` is the length of the outage; `reason` names the broker, or the partition, and the
    failure.
    """

    seconds: float
    reason: str
    refused: bool = False

    def __str__(self) -> str:
        """Return the outage in a sentence."""
        failed = "refused fetches" if self.refused else "not answered"
        return f"the log has {failed} for {self.seconds:.0f} s: {self.reason}"


class IsolationLevel(Enum):
    """Whether to read records of open and aborted transactions."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class AllowedOperations(msgspec.Struct, frozen=True):
    """The operations that a user may do, by Kafka's names, such as `READ`; None where unknown."""

    cluster: frozenset[str] | None
    topics: Mapping[str, frozenset[str] | None]
    """The operations on topics; a topic that the user may not describe has none."""
    group: frozenset[str] | None
    transactional_id: frozenset[str] | None = None


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to create; `configs` are the topic's settings by Kafka's names."""

    name: str
    partitions: int
    configs: Mapping[str, str] = {}


class TopicDescription(msgspec.Struct, frozen=True):
    """The description of a topic.

    A topic that is deleted and created again has another `id` (KIP-516). The `id` is empty for a
    log without ids.
    """

    name: str
    partitions: int
    configs: Mapping[str, str]
    id: str = ""


class Fetched(msgspec.Struct, frozen=True):
    """The records that one fetch found in one partition.

    `next_offset` is the next offset to read: after the last record, and after skipped markers and
    aborted records. `end_offset` is the end of the readable records at that time (the last stable
    offset when reading committed), so `end_offset - next_offset` is the lag. `batch` may be empty.
    """

    partition: TopicPartition
    batch: Batch
    next_offset: int
    end_offset: int


class Outgoing(msgspec.Struct, frozen=True):
    """Records for one partition; the batch's offsets are ignored."""

    partition: TopicPartition
    batch: Batch


class GroupMetadata(msgspec.Struct, frozen=True):
    """A member of a group in one of its generations, as the author of a commit."""

    group_id: str
    generation: int
    member_id: str


class MemberInfo(msgspec.Struct, frozen=True):
    """The leader's information about a member for an assignment."""

    member_id: str
    topics: frozenset[str]
    user_data: bytes


class MemberAssignment(msgspec.Struct, frozen=True):
    """A member's assignment: partitions, and user data from the leader."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes = b""


class Assigned(msgspec.Struct, frozen=True):
    """All partitions of the member from this generation on."""

    group: GroupMetadata
    assignment: MemberAssignment


class Revoked(msgspec.Struct, frozen=True):
    """The group rebalances: commit the work done on these partitions.

    The group waits for `Membership.revoked()` (until the rebalance timeout).
    """

    partitions: tuple[TopicPartition, ...]


class Lost(msgspec.Struct, frozen=True):
    """The group has removed the member: others may have these partitions, so commit nothing.

    With `fenced`, another member with the same instance id has replaced it; `rejoin` would remove
    that member.
    """

    partitions: tuple[TopicPartition, ...]
    fenced: bool = False
