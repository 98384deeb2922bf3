"""What is said to a log and what it answers."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.records import Batch, TopicPartition


class OffsetAndMetadata(msgspec.Struct, frozen=True):
    """The next offset to read, and a short text that is committed with it."""

    offset: int
    metadata: str = ""


class TransactionScope(msgspec.Struct, frozen=True, kw_only=True):
    """What transactions may have in them: records of these topics, and offsets that a group commits for what it reads, its sources."""

    topics: frozenset[str] = frozenset()
    group_id: str = ""
    sources: frozenset[str] = frozenset()


class Outage(NamedTuple):
    """A broker that is asked, and does not answer: since so many seconds; `reason` says which one it is, and what is wrong."""

    seconds: float
    reason: str


class IsolationLevel(Enum):
    """Whether records of open and aborted transactions are seen."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to be created; `configs` are the topic's settings by Kafka's names."""

    name: str
    partitions: int
    configs: Mapping[str, str] = {}


class TopicDescription(msgspec.Struct, frozen=True):
    """A topic as it is."""

    name: str
    partitions: int
    configs: Mapping[str, str]


class Fetched(msgspec.Struct, frozen=True):
    """What one fetch found in one partition.

    `next_offset` is where to read on: behind the last record, and behind markers and aborted records that were left out. `end_offset` is the end of
    what could be read at that time (the last stable offset when reading committed), so `end_offset - next_offset` is the lag. `batch` may be empty.
    """

    partition: TopicPartition
    batch: Batch
    next_offset: int
    end_offset: int


class Outgoing(msgspec.Struct, frozen=True):
    """Records for one partition; the batch's offsets mean nothing."""

    partition: TopicPartition
    batch: Batch


class GroupMetadata(msgspec.Struct, frozen=True):
    """Who commits: a member of a group in one of its generations."""

    group_id: str
    generation: int
    member_id: str


class MemberInfo(msgspec.Struct, frozen=True):
    """What the leader of a group knows of a member when it assigns."""

    member_id: str
    topics: frozenset[str]
    user_data: bytes


class MemberAssignment(msgspec.Struct, frozen=True):
    """What a member is given: partitions, and what the leader has to tell it."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes = b""


class Assigned(msgspec.Struct, frozen=True):
    """The member has these partitions, all of them, from this generation on."""

    group: GroupMetadata
    assignment: MemberAssignment


class Revoked(msgspec.Struct, frozen=True):
    """The group rebalances: commit what is done of these; the group waits for `Membership.revoked()` (until the rebalance timeout)."""

    partitions: tuple[TopicPartition, ...]


class Lost(msgspec.Struct, frozen=True):
    """The member was thrown out: these are somebody else's by now, nothing of them may be committed.

    With `fenced` another one has come with its instance id, and has its place: who goes back in by `rejoin` would throw that one out.
    """

    partitions: tuple[TopicPartition, ...]
    fenced: bool = False
