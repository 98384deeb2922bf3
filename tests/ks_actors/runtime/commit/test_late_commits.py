"""Offsets that are committed while the group moves on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ks_actors import IllegalGeneration
from ks_actors.log import Membership, OffsetAndMetadata, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.runtime import messages as m
from ks_actors.runtime.membership._group_view import OffsetCommits
from tests.ks_actors.log.helpers import assigned, group_name, join, new_topic, revoked, settle


class Answer:
    """The answer to an asker."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def tell(self, answer: None, /) -> None:
        self.heard.append(answer)

    def fail(self, error: Exception, /) -> None:
        self.heard.append(error)

    def wanted(self) -> bool:
        return not self.heard


class Moving:
    """A member that has agreed to a rebalance, of a group that has moved on, which it does not know yet."""

    def __init__(self, member: Membership, other: Membership, partition: TopicPartition) -> None:
        self.member = member
        self.other = other
        self.partition = partition
        self.commits = OffsetCommits(member)

    async def commit(self, offset: int) -> Answer:
        answer = Answer()
        await self.commits.commit(m.CommitOffsets(answer, {self.partition: OffsetAndMetadata(offset)}))
        return answer

    async def committed(self) -> int | None:
        found = await self.member.committed([self.partition])
        return found[self.partition].offset if found else None


@pytest.fixture
async def moving() -> AsyncIterator[Moving]:
    async with EmbeddedLog() as log:
        (partition,) = await new_topic(log)
        group = group_name()
        member = await join(log, group, partition.topic)
        await assigned(member)
        made = Moving(member, await join(log, group, partition.topic), partition)
        assert (await made.commit(1)).heard == [None]
        await revoked(member)
        made.commits.let_go()
        assert (await made.commit(2)).heard == [None]
        member.revoked()
        await settle(made.other)
        yield made


async def test_a_late_commit_is_made_in_the_next_generation(moving: Moving) -> None:
    """The commit alone is repeated, not the work: the output is written, and no other member has the task."""
    answer = await moving.commit(3)
    assert answer.heard == []
    assert await moving.committed() == 2
    await assigned(moving.member)
    for late in moving.commits.next_generation():
        await moving.commits.commit(late)
    assert answer.heard == [None]
    assert await moving.committed() == 3
    assert moving.commits.next_generation() == []


async def test_without_a_next_generation_it_fails(moving: Moving) -> None:
    """When the member is out, or the app closes."""
    answer = await moving.commit(3)
    moving.commits.give_up()
    (error,) = answer.heard
    assert isinstance(error, IllegalGeneration)
    (error,) = (await moving.commit(3)).heard
    assert isinstance(error, IllegalGeneration)
    assert await moving.committed() == 2


async def test_a_removed_member_waits_for_nothing(moving: Moving) -> None:
    """Once the generation is known a refusal is one."""
    await assigned(moving.member)
    assert moving.commits.next_generation() == []
    await moving.member.leave()
    (error,) = (await moving.commit(3)).heard
    assert isinstance(error, Exception)
    await asyncio.sleep(0)
