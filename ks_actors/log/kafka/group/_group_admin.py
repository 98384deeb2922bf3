"""Look up and change groups from outside: their members and offsets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, final

from ks_actors.log._groups import GroupMember
from ks_actors.log._types import AllowedOperations, GroupMetadata
from ks_actors.log.kafka.admin import fetch_committed, send_offsets
from ks_actors.log.kafka.client import GROUP, Unavailable, as_one_call
from ks_actors.log.kafka.wire import (
    GROUP_ID_NOT_FOUND,
    NONE,
    RETRIABLE,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_MEMBER_ID,
    DescribeGroupsRequest,
    EndTxnRequest,
    ListGroupsRequest,
    decode_assignment,
    decode_member,
    error_of,
    group_operations,
    leave_groups,
    name_of,
    operations,
    topic_operations,
)
from ks_actors.log.kafka.wire import UNKNOWN_TOPIC_OR_PARTITION as UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ks_actors.log._types import OffsetAndMetadata
    from ks_actors.log.kafka.client import KafkaClient
    from ks_actors.records import TopicPartition


@final
class GroupAdmin:
    """Look up and change groups; each call ends by the client's deadline, with LogTimeout."""

    def __init__(self, client: KafkaClient) -> None:
        self._client: KafkaClient = client

    async def ids(self) -> Sequence[str]:
        """Return the ids of all groups, sorted.

        Each broker only knows the groups that it coordinates.
        """
        return sorted(await self._client.retry("to list groups", self._ids))

    async def _ids(self) -> set[str]:
        # Ask all brokers at once: each may take the whole request timeout.
        asked = {node: self._client.send(node, ListGroupsRequest()) for node in self._client.nodes}
        found: set[str] = set()
        answers = await asyncio.gather(*asked.values(), return_exceptions=True)
        for node, answer in zip(asked, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            if answer.error_code in RETRIABLE:
                raise Unavailable(f"broker {node} answered {name_of(answer.error_code)}")
            if answer.error_code:
                raise error_of(answer.error_code, "failed to list groups")
            found.update(name for name, *_ in answer.groups)
        return found

    async def members(self, group_id: str) -> Sequence[GroupMember]:
        """Return the members of a group. Raises NotAuthorized."""
        response = await self._client.send_to_coordinator(
            GROUP,
            group_id,
            DescribeGroupsRequest([group_id]),
            lambda answer: [each[0] for each in answer.groups],
        )
        code, _, state, _, _, members, *_ = response.groups[0]
        if code not in (NONE, GROUP_ID_NOT_FOUND):
            raise error_of(code, f"failed to list the members of group {group_id!r}")
        # In other states brokers leave assignments empty.
        is_stable = state == "Stable"
        return [
            GroupMember(
                member_id,
                client_id,
                host,
                frozenset(decode_assignment(assignment).partitions) if is_stable else None,
                decode_member(member_id, metadata).user_data if is_stable and metadata else b"",
            )
            for member_id, client_id, host, metadata, assignment, *_ in members
        ]

    @as_one_call
    async def allowed(
        self, topics: Iterable[str], group_id: str, transactional_id: str | None
    ) -> AllowedOperations:
        """Return operations permitted on topics, a group, a transactional id and the cluster."""
        wanted = sorted(topics)
        found = await self._client.send_to_any(
            topic_operations(wanted),
            lambda answer: [code for code, *_ in answer.topics if code != UNKNOWN],
        )
        described = await self._client.send_to_coordinator(
            GROUP,
            group_id,
            group_operations(group_id),
            lambda answer: [each[0] for each in answer.groups],
        )
        code, *_, bits = described.groups[0]
        return AllowedOperations(
            cluster=operations(found.operations),
            topics={name: operations(allowed) for _, name, _, _, allowed in found.topics},
            group=operations(bits) if code in (NONE, GROUP_ID_NOT_FOUND) else frozenset(),
            transactional_id=None
            if transactional_id is None
            else await self._allowed_transactions(transactional_id),
        )

    async def _allowed_transactions(self, transactional_id: str) -> frozenset[str]:
        """Request the end of a transaction of a producer that does not exist: it changes nothing.

        No request reports permissions for transactional ids, but brokers check these permissions
        before anything else.
        """
        ended = await self._client.send_to_any(EndTxnRequest(transactional_id, -1, -1, False))
        if ended.error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return frozenset()
        return frozenset({"WRITE", "DESCRIBE"})

    async def remove(self, group_id: str, members: Iterable[GroupMember]) -> None:
        """Remove members from a group. Raises NotAuthorized."""
        request = leave_groups(group_id, [member.member_id for member in members])
        response = await self._client.send_to_coordinator(
            GROUP, group_id, request, _codes_of_leaves
        )
        for code in _codes_of_leaves(response):
            if code not in (NONE, UNKNOWN_MEMBER_ID):
                raise error_of(code, f"failed to remove members of group {group_id!r}")

    async def offsets(self, group_id: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return all offsets that a group has committed."""
        return await fetch_committed(self._client, group_id, None)

    async def set_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Commit offsets in one request, without membership.

        A coordinator accepts such a commit only for a group without members.
        """
        await send_offsets(self._client, GroupMetadata(group_id, -1, ""), None, offsets)


def _codes_of_leaves(response: Any) -> list[int]:
    return [response.error_code, *(code for *_, code in response.members)]
