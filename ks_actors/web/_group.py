"""The group of an app, as described by its log: members, committed offsets and lag."""

from __future__ import annotations

import asyncio
import re
from socket import gethostname
from typing import TYPE_CHECKING

import msgspec

from ks_actors._errors import KsActorsError, SerializationError
from ks_actors.assignment import decode_member
from ks_actors.log import IsolationLevel, TellsGroups
from ks_actors.records import TaskId, TopicPartition
from ks_actors.system import current_member

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ks_actors.app import App
    from ks_actors.assignment import MemberState
    from ks_actors.log import GroupMember
    from ks_actors.web._graph import Layout

_TIMEOUT_S = 5.0
# The process id and the rest that Kafka Streams adds, too.
_GENERATED = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-StreamThread-\d+-consumer)?$")


class MemberView(msgspec.Struct, frozen=True):
    """A member of the group, with its tasks (None while a rebalance makes them unknown).

    `name` is its client id without the generated rest. `host` is empty for a member in this
    process. `endpoint` is the URL at which it answers queries of stores. `page` is the address of
    its page, if known: relative for a member of the same supervisor. `queries` are those of its
    tasks, by name, if the topology has any.
    """

    client_id: str
    member_id: str
    name: str
    host: str
    here: bool
    tasks: tuple[str, ...] | None
    queries: tuple[str, ...] = ()
    endpoint: str = ""
    page: str | None = None


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


def instance_name(app: App) -> str:
    """Return the name of an instance for people: its host, and which of the host's members it is.

    A client id that is not the application's id is part of the name.
    """
    member, config = current_member(), app.config
    parts = [gethostname()]
    if config.client_id != config.application_id:
        parts.append(config.client_id)
    if member is not None:
        parts.append(f"member {member.number} of {member.count}")
    return ", ".join(parts)


def _member(member: GroupMember, app: App, layout: Layout) -> MemberView:
    try:
        told = decode_member(member.user_data)
    except SerializationError:
        told = decode_member(b"")  # another program's member has no more to tell
    topics = {} if told.topology is None else told.topology.topics
    tasks: tuple[TaskId, ...] | None = None
    if member.partitions is not None:
        found = {_task(one, topics, layout) for one in member.partitions}
        tasks = tuple(sorted(one for one in found if one is not None))
    queries = {layout.query_of(task.subtopology) for task in tasks or ()}
    name = _GENERATED.sub("", member.client_id)
    return MemberView(
        member.client_id,
        member.member_id,
        name,
        member.host.removeprefix("/"),
        member.member_id == app.member_id,
        None if tasks is None else tuple(map(str, tasks)),
        tuple(sorted(query for query in queries if query is not None)),
        told.endpoint,
        _page(told, name, app),
    )


def _task(
    partition: TopicPartition, topics: Mapping[int, Collection[str]], layout: Layout
) -> TaskId | None:
    """Return the task of a partition; a member may run a part that this instance does not."""
    found = layout.task_of(partition)
    if found is not None:
        return found
    part = next((part for part, names in topics.items() if partition.topic in names), None)
    return None if part is None else TaskId(part, partition.partition)


def _page(told: MemberState, name: str, app: App) -> str | None:
    """Return the address of a member's page: its client tag `page`, or that by its supervisor."""
    tag = dict(told.tags).get("page", "")
    if tag.startswith(("http://", "https://")):
        return tag
    own = current_member()
    if own is None or told.host != own.directory.name:
        return None
    first = app.config.client_id.removesuffix(f"-{own.number}" if own.number > 1 else "")
    number = "1" if name == first else name.removeprefix(f"{first}-")
    return f"../{number}/" if number.isdecimal() else None
