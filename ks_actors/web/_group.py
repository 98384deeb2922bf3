"""The group of an app, as described by its log: members, committed offsets and lag."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from ks_actors._errors import KsActorsError
from ks_actors.log import IsolationLevel, TellsGroups
from ks_actors.records import TopicPartition

if TYPE_CHECKING:
    from ks_actors.app import App
    from ks_actors.log import GroupMember
    from ks_actors.web._graph import Layout

_TIMEOUT_S = 5.0


class MemberView(msgspec.Struct, frozen=True):
    """A member of the group, with its tasks (None while a rebalance makes them unknown)."""

    client_id: str
    member_id: str
    host: str
    here: bool
    tasks: tuple[str, ...] | None


class GroupPartition(msgspec.Struct, frozen=True):
    """A partition that the topology reads, with the group's committed offset.

    `lag` counts the offsets from the committed offset to the end, or without a commit all offsets
    of the partition.
    """

    topic: str
    partition: int
    member: str | None
    committed: int | None
    end: int
    lag: int


class GroupView(msgspec.Struct, frozen=True):
    """The members and the lag of the group; `error` says why they could not be looked up."""

    members: tuple[MemberView, ...] = ()
    partitions: tuple[GroupPartition, ...] = ()
    error: str | None = None


async def look_at_group(app: App, layout: Layout) -> GroupView:
    """Ask the log for the members of the app's group, and for their offsets; never raises."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await _look(app, layout)
    except TimeoutError:
        return GroupView(error=f"the log did not describe the group within {_TIMEOUT_S:g} s")
    except KsActorsError as error:
        return GroupView(error=f"the log did not describe the group: {error}")


async def _look(app: App, layout: Layout) -> GroupView:
    log = app.log
    members = await app.members()
    views = tuple(_member(member, app, layout) for member in members)
    if not isinstance(log, TellsGroups):
        return GroupView(views)
    owners = {one: member.client_id for member in members for one in member.partitions or ()}
    committed = await log.group_offsets(app.config.application_id)
    topics = {one.topic for one in (*owners, *committed)}
    read = [topic for topic in topics if layout.source_node(topic) is not None]
    sizes = await log.describe_topics(sorted(read), configs=False)
    wanted = [
        TopicPartition(topic, number)
        for topic in sorted(sizes)
        for number in range(sizes[topic].partitions)
    ]
    exact = app.config.processing_guarantee.value != "at_least_once"
    level = IsolationLevel.READ_COMMITTED if exact else IsolationLevel.READ_UNCOMMITTED
    ends = await log.end_offsets(wanted, level)
    begins = await log.begin_offsets(wanted)
    return GroupView(
        views,
        tuple(
            GroupPartition(
                one.topic,
                one.partition,
                owners.get(one),
                committed[one].offset if one in committed else None,
                ends[one],
                max(0, ends[one] - (committed[one].offset if one in committed else begins[one])),
            )
            for one in wanted
        ),
    )


def _member(member: GroupMember, app: App, layout: Layout) -> MemberView:
    tasks = None
    if member.partitions is not None:
        found = {layout.task_of(one) for one in member.partitions}
        tasks = tuple(str(task) for task in sorted(one for one in found if one is not None))
    return MemberView(
        member.client_id,
        member.member_id,
        member.host,
        member.member_id == app.member_id,
        tasks,
    )
