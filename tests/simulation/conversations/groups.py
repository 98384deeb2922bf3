"""Conversations about groups and their members."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass
from tests.simulation.conversations.talk import Answer, Talk, make
from tests.simulation.conversations.transactions import Transactional


def _join(group: str, member: str, *, instance: str | None = None, metadata: bytes = b"m", session_ms: int = 10_000) -> Answer:
    return {
        "group_id": group, "session_timeout_ms": session_ms, "rebalance_timeout_ms": 10_000, "member_id": member, "group_instance_id": instance,
        "protocol_type": "consumer", "protocols": [{"name": "p", "metadata": metadata}],
    }  # fmt: skip


def _member(group: str, generation: int, member: str, instance: str | None = None) -> Answer:
    return {"group_id": group, "generation_id": generation, "member_id": member, "group_instance_id": instance}


async def of_groups(talk: Talk) -> None:
    """Join, assign, send heartbeats, commit and leave, with wrong ids and generations."""
    topic, group = await make(talk), f"{talk.name}-g"
    await talk.settle("FindCoordinator", {"key": group, "key_type": 0})
    await talk.settle("JoinGroup", _join(group, "", session_ms=1))
    await talk.settle("JoinGroup", _join(group, "stranger"))
    one = (await talk.settle("JoinGroup", _join(group, "")))["member_id"]
    await talk.settle("JoinGroup", _join(group, one))
    asked = [{"partition": 0, "offset": 1, "leader_epoch": -1, "metadata": ""}]

    async def commit(generation: int, member: str) -> None:
        await talk.settle("OffsetCommit", {**_member(group, generation, member), "topics": [{"name": topic, "partitions": asked}]}, lambda _: ())

    await commit(1, one)
    for generation, member in ((1, one), (2, one), (1, "stranger")):
        await talk.settle("Heartbeat", _member(group, generation, member))
    await talk.settle("SyncGroup", {**_member(group, 1, one), "assignments": [{"member_id": one, "assignment": b"a"}]})
    for generation, member in ((1, one), (0, one), (1, "stranger"), (-1, "")):
        await commit(generation, member)
    await talk.settle("JoinGroup", _join(group, one))
    await talk.settle("SyncGroup", {**_member(group, 1, one), "assignments": []})
    await talk.settle("SyncGroup", {**_member(group, 2, one), "assignments": [{"member_id": one, "assignment": b"b"}]})
    await talk.settle("SyncGroup", {**_member(group, 2, one), "assignments": []})
    await talk.ask("DescribeGroups", {"groups": [group]})
    listed = await talk.ask("ListGroups", quietly=True)
    talk.note("ListGroups", [each for each in listed["groups"] if each["group_id"] == group])
    static = (await talk.settle("JoinGroup", _join(f"{group}s", "", instance="i")))["member_id"]
    await talk.settle("SyncGroup", {**_member(f"{group}s", 1, static, "i"), "assignments": [{"member_id": static, "assignment": b"c"}]})
    again = (await talk.settle("JoinGroup", _join(f"{group}s", "", instance="i")))["member_id"]
    for member in (static, again):
        await talk.settle("Heartbeat", _member(f"{group}s", 1, member, "i"))
    await talk.settle("Heartbeat", _member(f"{group}s", 1, again, "j"))
    await talk.settle("SyncGroup", {**_member(f"{group}s", 1, again, "i"), "assignments": []})
    await talk.settle("LeaveGroup", {"group_id": f"{group}s", "members": [{"member_id": "", "group_instance_id": "i"}]})
    await talk.settle("LeaveGroup", {"group_id": group, "members": [{"member_id": one}, {"member_id": "stranger"}]})
    await talk.settle("Heartbeat", _member(group, 2, one))
    await talk.ask("DescribeGroups", {"groups": [group, f"{group}s"]})


async def of_followers(talk: Talk) -> None:
    """Have a second member come to a group, and go."""
    topic, group = await make(talk), f"{talk.name}-g"
    await talk.settle("FindCoordinator", {"key": group, "key_type": 0})

    async def until_in(state: str, members: int) -> None:
        async def look() -> bool | None:
            (found,) = (await talk.ask("DescribeGroups", {"groups": [group]}, quietly=True))["groups"]
            return (found["state"] == state and len(found["members"]) == members) or None

        await talk.until(look, f"{group} with {members} members in {state}")

    async def commit(generation: int, member: str) -> None:
        asked = [{"partition": 0, "offset": generation, "leader_epoch": -1, "metadata": ""}]
        await talk.ask("OffsetCommit", {**_member(group, generation, member), "topics": [{"name": topic, "partitions": asked}]})

    one = (await talk.settle("JoinGroup", _join(group, "")))["member_id"]
    await talk.settle("JoinGroup", _join(group, one))
    await talk.settle("SyncGroup", {**_member(group, 1, one), "assignments": [{"member_id": one, "assignment": b"a"}]})
    other = (await talk.settle("JoinGroup", _join(group, "")))["member_id"]
    await talk.settle("Heartbeat", _member(group, 1, one))
    joining = asyncio.create_task(talk.ask("JoinGroup", _join(group, other), quietly=True, line=1))
    await until_in("PreparingRebalance", 2)
    await talk.settle("Heartbeat", _member(group, 1, one))
    await talk.settle("SyncGroup", {**_member(group, 1, one), "assignments": []})
    await commit(1, one)
    await commit(1, other)
    await talk.ask("DescribeGroups", {"groups": [group]})
    await talk.settle("JoinGroup", _join(group, one))
    talk.note("JoinGroup", await joining)
    for member in (one, other):
        await talk.settle("Heartbeat", _member(group, 2, member))
    await commit(2, one)
    await commit(1, one)
    await talk.ask("DescribeGroups", {"groups": [group]})
    syncing = asyncio.create_task(talk.ask("SyncGroup", _member(group, 2, other), quietly=True, line=1))
    given = [{"member_id": one, "assignment": b"1"}, {"member_id": other, "assignment": b"2"}, {"member_id": "stranger", "assignment": b"3"}]
    await talk.settle("SyncGroup", {**_member(group, 2, one), "assignments": given})
    talk.note("SyncGroup", await syncing)
    await commit(2, other)
    # A follower that joins again as it was gets what it had.
    await talk.settle("JoinGroup", _join(group, other))
    await talk.settle("SyncGroup", _member(group, 2, other))
    await talk.settle("LeaveGroup", {"group_id": group, "members": [{"member_id": one}]})
    for member in (one, other):
        await talk.settle("Heartbeat", _member(group, 2, member))
    await talk.settle("JoinGroup", _join(group, other))
    await talk.ask("DescribeGroups", {"groups": [group]})
    await talk.settle("LeaveGroup", {"group_id": group, "members": [{"member_id": other}]})
    await talk.ask("DescribeGroups", {"groups": [group]})
    await commit(3, other)
    await commit(-1, "")


async def of_static_members(talk: Talk) -> None:
    """Have members with instance ids be replaced, fenced, and sent away by others."""
    topic, group = await make(talk), f"{talk.name}-g"
    await talk.settle("FindCoordinator", {"key": group, "key_type": 0})
    old = (await talk.settle("JoinGroup", _join(group, "", instance="i")))["member_id"]
    await talk.settle("SyncGroup", {**_member(group, 1, old, "i"), "assignments": [{"member_id": old, "assignment": b"a"}]})

    async def commit(generation: int, member: str, instance: str | None) -> None:
        asked = [{"partition": 0, "offset": 1, "leader_epoch": -1, "metadata": ""}]
        fields = {**_member(group, generation, member, instance), "topics": [{"name": topic, "partitions": asked}]}
        await talk.ask("OffsetCommit", fields)

    await commit(1, old, "i")
    await commit(1, old, None)
    new = (await talk.settle("JoinGroup", _join(group, "", instance="i")))["member_id"]
    for member, instance in ((old, "i"), (new, "i"), (new, "j"), (old, None), (new, None)):
        await commit(1, member, instance)
        await talk.settle("Heartbeat", _member(group, 1, member, instance))
        await talk.settle("SyncGroup", _member(group, 1, member, instance))
    await talk.settle("JoinGroup", _join(group, old, instance="i"))
    await talk.settle("JoinGroup", _join(group, "stranger", instance="k"))
    await talk.ask("DescribeGroups", {"groups": [group]})
    # With other metadata its place is not simply its predecessor's.
    last = (await talk.settle("JoinGroup", _join(group, "", instance="i", metadata=b"other")))["member_id"]
    await talk.ask("DescribeGroups", {"groups": [group]})
    leaving = ((old, "i"), ("", "j"), ("stranger", "i"), ("", "i"), (last, "i"))
    await talk.settle(
        "LeaveGroup", {"group_id": group, "members": [{"member_id": each, "group_instance_id": instance} for each, instance in leaving]}
    )
    await talk.ask("DescribeGroups", {"groups": [group]})


async def of_wrong_members(talk: Talk) -> None:
    """Join with other protocols, without any, and a group without a name; commit what belongs to no member."""
    topic, group = await make(talk), f"{talk.name}-g"
    await talk.settle("FindCoordinator", {"key": group, "key_type": 0})
    none = f"{group}-none"
    await talk.settle("Heartbeat", _member(none, 1, "stranger"))
    await talk.settle("SyncGroup", _member(none, 1, "stranger"))
    await talk.settle("LeaveGroup", {"group_id": none, "members": [{"member_id": "stranger"}, {"member_id": "", "group_instance_id": "i"}]})
    await talk.settle("OffsetFetch", {"group_id": none, "topics": None, "require_stable": True})
    await talk.settle("JoinGroup", _join("", ""))
    await talk.settle("JoinGroup", _join(group, "", session_ms=2_000_000))
    await talk.settle("Heartbeat", _member("", 1, "stranger"))
    one = (await talk.settle("JoinGroup", _join(group, "")))["member_id"]
    await talk.settle("JoinGroup", _join(group, one))
    await talk.settle("JoinGroup", {**_join(group, ""), "protocol_type": "connect"})
    await talk.settle("JoinGroup", {**_join(group, ""), "protocols": [{"name": "q", "metadata": b""}]})
    await talk.settle("JoinGroup", {**_join(group, ""), "protocols": []})
    await talk.ask("DescribeGroups", {"groups": [group]})
    asked = [{"partition": number, "offset": 1, "leader_epoch": -1, "metadata": ""} for number in (0, 9)]
    for generation, member in ((-1, ""), (-1, one), (1, "")):
        await talk.ask("OffsetCommit", {**_member(group, generation, member), "topics": [{"name": topic, "partitions": asked}]})
    await talk.ask("OffsetCommit", {**_member(none, 1, "x"), "topics": [{"name": topic, "partitions": asked}]})


async def of_offsets_of_members(talk: Talk) -> None:
    """Commit offsets of members in transactions, in and out of their generations."""
    topic, one, group = await make(talk), Transactional(talk, "x"), f"{talk.name}-g"
    await talk.settle("FindCoordinator", {"key": group, "key_type": 0})
    member = (await talk.settle("JoinGroup", _join(group, "")))["member_id"]
    await talk.settle("JoinGroup", _join(group, member))
    await one.init()
    await one.add_offsets(0, group)
    await one.commit_offset(0, group, topic, 1, 1, member)
    await talk.settle("SyncGroup", {**_member(group, 1, member), "assignments": [{"member_id": member, "assignment": b"a"}]})
    for generation, name in ((1, member), (2, member), (1, "stranger"), (1, ""), (-1, ""), (-1, member)):
        await one.commit_offset(0, group, topic, 2, generation, name)
    await one.commit_offset(0, group, talk.topic("none"), 2, 1, member)
    await one.end(0, commit=True)
    await one.describe()
    await talk.settle("OffsetFetch", {"group_id": group, "topics": None, "require_stable": True})
