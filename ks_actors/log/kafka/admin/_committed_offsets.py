"""Committed offsets of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ks_actors._errors import IllegalGeneration
from ks_actors.log._types import OffsetAndMetadata
from ks_actors.log.kafka.admin._split_commits import commit_split
from ks_actors.log.kafka.client import GROUP, UnknownTopics
from ks_actors.log.kafka.wire import (
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSTABLE_OFFSET_COMMIT,
    error_of,
    offset_commit,
    offset_fetch,
)
from ks_actors.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ks_actors.log._types import GroupMetadata
    from ks_actors.log.kafka.client import KafkaClient

_NONE: Final = -1


async def fetch_committed(
    client: KafkaClient, group_id: str, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return a group's committed offsets, without partitions that have no offset.

    None for `partitions` means all. Waits until no open transaction is about to change the offsets.
    Otherwise the next owner of a partition would start at the offset before that transaction, and
    process the same records again. Raises LogTimeout, NotAuthorized.
    """
    wanted = None if partitions is None else list(partitions)
    if wanted is not None and not wanted:
        return {}
    response = await client.send_to_coordinator(
        GROUP, group_id, offset_fetch(group_id, wanted), _fetch_codes
    )
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    if response.error_code:
        raise error_of(
            response.error_code,
            f"failed to look up the committed offsets of group {group_id!r}",
        )
    for topic, numbers, _ in response.topics:
        for number, offset, epoch, metadata, code, _ in numbers:
            partition = TopicPartition(topic, number)
            if code == UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if code:
                raise error_of(
                    code,
                    f"failed to look up the committed offset of group {group_id!r} for {partition}",
                )
            if offset != _NONE:
                found[partition] = OffsetAndMetadata(offset, metadata or "")
                client.epochs.note_committed(partition, offset, epoch)
    return found


async def fetch_unstable(
    client: KafkaClient, group_id: str, partitions: Iterable[TopicPartition]
) -> set[TopicPartition]:
    """Return the partitions with a group offset that an open transaction is about to change.

    Raises LogTimeout, NotAuthorized.
    """
    wanted = list(partitions)
    if not wanted:
        return set()

    def codes(response: Any) -> list[int]:
        return [code for code in _fetch_codes(response) if code != UNSTABLE_OFFSET_COMMIT]

    response = await client.send_to_coordinator(
        GROUP, group_id, offset_fetch(group_id, wanted), codes
    )
    for code in filter(None, codes(response)):
        raise error_of(
            code,
            f"failed to find out whether group {group_id!r} has pending offset commits",
        )
    return {
        TopicPartition(topic, number)
        for topic, numbers, _ in response.topics
        for number, *_, code, _ in numbers
        if code == UNSTABLE_OFFSET_COMMIT
    }


async def commit_offsets(
    client: KafkaClient,
    group: GroupMetadata,
    instance_id: str | None,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> None:
    """Commit offsets as a member of a generation.

    Raises IllegalGeneration, UnknownTopicOrPartition, LogTimeout, NotAuthorized.
    """
    if group.generation < 0:
        # A coordinator would accept the commit: any client may commit for a group without members.
        raise IllegalGeneration(
            f"the member is not in a generation of group {group.group_id!r} yet: wait until it has "
            "an assignment"
        )
    await send_offsets(client, group, instance_id, offsets)


async def send_offsets(
    client: KafkaClient,
    group: GroupMetadata,
    instance_id: str | None,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> None:
    """Commit offsets; without a generation and a member id, for a group without members.

    Many offsets take several requests, so after an error some offsets may be committed. Raises the
    same errors as `commit_offsets`.
    """
    if not offsets:
        return

    async def send(part: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, int]:
        patience = UnknownTopics(client.options)
        response = await client.send_to_coordinator(
            GROUP,
            group.group_id,
            offset_commit(group, instance_id, part, client.epochs.of(part)),
            lambda answer: patience.retried(
                code for _, numbers in answer.topics for _, code in numbers
            ),
        )
        return {
            TopicPartition(topic, number): code
            for topic, numbers in response.topics
            for number, code in numbers
        }

    for partition, code in (await commit_split(group.group_id, offsets, send)).items():
        if code:
            raise error_of(
                code,
                f"failed to commit an offset of {partition} for group {group.group_id!r}",
            )


def _fetch_codes(response: Any) -> list[int]:
    codes = [
        response.error_code,
        *(code for _, numbers, _ in response.topics for *_, code, _ in numbers),
    ]
    return [code for code in codes if code != UNKNOWN_TOPIC_OR_PARTITION]
