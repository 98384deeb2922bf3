"""Coordinators of groups: members join, one of them assigns, and whoever sends no heartbeats is out (the classic protocol)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from tests.simulation.broker import answers
from tests.simulation.cluster import OFFSETS_TOPIC
from tests.simulation.coordinators import NOT_COORDINATOR, Shard, shard_of, write

if TYPE_CHECKING:
    from tests.simulation.broker import Broker, Call

ILLEGAL_GENERATION: Final = 22
_INVALID_GROUP: Final = 24
UNKNOWN_MEMBER: Final = 25
_INVALID_SESSION_TIMEOUT: Final = 26
REBALANCE: Final = 27
_INCONSISTENT_PROTOCOL: Final = 23
_MEMBER_ID_REQUIRED: Final = 79
FENCED_INSTANCE: Final = 82
_SHORTEST_MS: Final = 500
_LONGEST_MS: Final = 1_800_000
_UNKNOWN_OPERATIONS: Final = -(1 << 31)
_OPERATIONS: Final = 0b110101001000

Answer = dict[str, Any]
_REFUSED: Final[Answer] = {"generation_id": -1, "protocol_name": "", "leader": "", "member_id": ""}


@dataclass
class Member:
    """A member of a group; `joining` and `syncing` are its requests that wait for an answer."""

    id: str
    instance: str | None
    client_id: str
    session_ms: int
    rebalance_ms: int
    protocols: list[tuple[str, bytes]]
    assignment: bytes = b""
    joining: asyncio.Future[Answer] | None = None
    syncing: asyncio.Future[Answer] | None = None
    timer: asyncio.TimerHandle | None = None

    def metadata(self, protocol: str) -> bytes:
        """Return what it tells the leader."""
        return dict(self.protocols).get(protocol, b"")

    def stored(self) -> Member:
        """Return it as it is in the log, without requests."""
        return Member(self.id, self.instance, self.client_id, self.session_ms, self.rebalance_ms, self.protocols, self.assignment)


@dataclass
class Stored:
    """A group as it was written last."""

    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: list[Member] = field(default_factory=list)


class Group:
    """A group as its coordinator has it in memory."""

    def __init__(self, name: str, broker: Broker, shard: Shard) -> None:
        stored = broker.cluster.stored_groups.get(name, Stored())
        self.name: str = name
        self.generation: int = stored.generation
        self.protocol_type: str = stored.protocol_type
        self.protocol: str = stored.protocol
        self.leader: str = stored.leader
        self.members: dict[str, Member] = {each.id: each.stored() for each in stored.members}
        self.state: str = "Stable" if self.members else "Empty"
        # Members that have got an id, and have not joined with it yet.
        self.pending: dict[str, asyncio.TimerHandle] = {}
        self._broker = broker
        self._shard = shard
        self._timer: asyncio.TimerHandle | None = None
        self._synced: asyncio.TimerHandle | None = None
        for member in self.members.values():
            self.heard_of(member)

    def end(self) -> None:
        """Stop: another broker speaks for the group."""
        for timer in (self._timer, self._synced, *self.pending.values(), *(each.timer for each in self.members.values())):
            if timer is not None:
                timer.cancel()
        for member in self.members.values():
            self._answer_join(member, {"error_code": NOT_COORDINATOR})
            self._answer_sync(member, {"error_code": NOT_COORDINATOR})

    # --- members ------------------------------------------------------------------------------------------------------------------------

    def judge(self, member_id: str, instance: str | None, generation: int | None = None) -> int:
        """Return the error code for a member's request, 0 if it is one, in this generation."""
        if instance is not None:
            current = self.of_instance(instance)
            if current is None:
                return UNKNOWN_MEMBER
            if current.id != member_id:
                return FENCED_INSTANCE
        if member_id not in self.members:
            return UNKNOWN_MEMBER
        return ILLEGAL_GENERATION if generation is not None and generation != self.generation else 0

    @property
    def known(self) -> bool:
        """Whether the group is there for its coordinator: it has, or has had, members or offsets."""
        cluster = self._broker.cluster
        return bool(self.members or self.pending or self.name in cluster.stored_groups or cluster.offsets_of(self.name).known)

    def supports(self, protocol_type: str, protocols: list[tuple[str, bytes]]) -> bool:
        """Return whether a member may join with these protocols: all members have one in common."""
        if not self.members:
            return bool(protocol_type and protocols)
        common = set.intersection(*({name for name, _ in each.protocols} for each in self.members.values()))
        return protocol_type == self.protocol_type and not common.isdisjoint(name for name, _ in protocols)

    def of_instance(self, instance: str | None) -> Member | None:
        """Return the member of an instance id."""
        return next((each for each in self.members.values() if instance is not None and each.instance == instance), None)

    def heard_of(self, member: Member) -> None:
        """Give a member its session's time from now on."""
        if member.timer is not None:
            member.timer.cancel()
        member.timer = asyncio.get_running_loop().call_later(member.session_ms / 1000, self._expire, member)

    def _expire(self, member: Member) -> None:
        if self.members.get(member.id) is not member:
            return
        if not self._broker.runs or self._broker.frozen or member.joining is not None or member.syncing is not None:
            # Whoever waits for an answer is there.
            self.heard_of(member)
            return
        self._broker.cluster.trace.note("member expires", member.id)
        self.remove(member)

    def remove(self, member: Member) -> None:
        """Take a member out."""
        if member.timer is not None:
            member.timer.cancel()
        self._answer_join(member, {"error_code": UNKNOWN_MEMBER})
        self._answer_sync(member, {"error_code": UNKNOWN_MEMBER})
        self.members.pop(member.id, None)
        if member.id == self.leader:
            self.leader = next(iter(self.members), "")
        if self.state in ("Stable", "CompletingRebalance"):
            self.rebalance()
        else:
            self.look()

    def invite(self, member_id: str, session_ms: int) -> None:
        """Wait for a member to join with the id that it has got."""
        self.pending[member_id] = asyncio.get_running_loop().call_later(session_ms / 1000, self.uninvite, member_id)

    def uninvite(self, member_id: str) -> None:
        """Wait no longer."""
        timer = self.pending.pop(member_id, None)
        if timer is not None:
            timer.cancel()
            self.look()

    # --- rebalances ---------------------------------------------------------------------------------------------------------------------

    def join(self, member: Member, protocols: list[tuple[str, bytes]]) -> asyncio.Future[Answer]:
        """Have a member join the next generation; return the future of its answer."""
        self._answer_join(member, {"error_code": UNKNOWN_MEMBER})
        member.protocols = protocols
        member.joining = asyncio.get_running_loop().create_future()
        self.members[member.id] = member
        if member.timer is None:
            self.heard_of(member)
        if not self.leader:
            self.leader = member.id
        joining = member.joining
        if self.state != "PreparingRebalance":
            self.rebalance()
        else:
            self.look()
        return joining

    def rebalance(self) -> None:
        """Ask all members to join again."""
        loop = asyncio.get_running_loop()
        for member in self.members.values():
            self._answer_sync(member, {"error_code": REBALANCE})
        empty, self.state = self.state == "Empty", "PreparingRebalance"
        longest = max((each.rebalance_ms for each in self.members.values()), default=0) / 1000
        self._set_timer(self._broker.cluster.manners.first_join if empty else longest, early=not empty)
        self._broker.cluster.trace.note("rebalance", self.name, self.generation, list(self.members))
        if not empty:
            self.look()
        del loop

    def _set_timer(self, seconds: float, *, early: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # The first generation waits for more members, also when all have joined that there are.
        self._early = early
        self._timer = asyncio.get_running_loop().call_later(seconds, self._complete)

    def look(self) -> None:
        """Begin the next generation if all have joined."""
        if (
            self.state == "PreparingRebalance"
            and self._early
            and not self.pending
            and all(each.joining is not None for each in self.members.values())
        ):
            self._complete()

    def _complete(self) -> None:
        if self.state != "PreparingRebalance":
            return
        for member in [each for each in self.members.values() if each.joining is None and each.instance is None]:
            if member.timer is not None:
                member.timer.cancel()
            del self.members[member.id]
        joined = [each for each in self.members.values() if each.joining is not None]
        if self.members and not joined:
            # Members with instance ids keep their places until their sessions end.
            self._set_timer(max(each.rebalance_ms for each in self.members.values()) / 1000, early=True)
            return
        if self._timer is not None:
            self._timer.cancel()
        self.generation += 1
        if not self.members:
            self.state, self.leader, self.protocol = "Empty", "", ""
            self.store()
            return
        if self.leader not in self.members or self.members[self.leader].joining is None:
            self.leader = joined[0].id
        self.protocol = joined[0].protocols[0][0]
        self.state = "CompletingRebalance"
        self._broker.cluster.trace.note("generation", self.name, self.generation, list(self.members), self.leader)
        for member in joined:
            self._answer_join(member, self.generation_of(member))
            self.heard_of(member)
        longest = max(each.rebalance_ms for each in self.members.values()) / 1000
        if self._synced is not None:
            self._synced.cancel()
        self._synced = asyncio.get_running_loop().call_later(longest, self._give_up_late, self.generation)

    def _give_up_late(self, generation: int) -> None:
        """Take out whoever has not asked for its assignment."""
        if self.state == "CompletingRebalance" and self.generation == generation:
            for member in [each for each in self.members.values() if each.syncing is None]:
                if member.id in self.members:
                    self.remove(member)

    def generation_of(self, member: Member, leader: str | None = None) -> Answer:
        """Return the answer to a member that has joined; the leader gets all members."""
        leads = member.id == self.leader and leader is None
        return {
            "generation_id": self.generation,
            "protocol_name": self.protocol,
            "leader": self.leader if leader is None else leader,
            "member_id": member.id,
            "members": [
                {"member_id": each.id, "group_instance_id": each.instance, "metadata": each.metadata(self.protocol)}
                for each in (self.members.values() if leads else ())
            ],
        }

    async def sync(self, member: Member, assignments: dict[str, bytes]) -> Answer:
        """Return a member's assignment, as soon as the leader has given all of them."""
        if self.state == "PreparingRebalance":
            return {"error_code": REBALANCE}
        if self.state == "Stable":
            return {"assignment": member.assignment}
        self._answer_sync(member, {"error_code": UNKNOWN_MEMBER})
        waiting = member.syncing = asyncio.get_running_loop().create_future()
        if member.id == self.leader:
            generation = self.generation
            given = {each: assignments.get(each, b"") for each in self.members}
            code = await self.write(given)
            if self.state == "CompletingRebalance" and self.generation == generation:
                self._assign(given, code)
        answer: Answer = await waiting
        return answer

    def _assign(self, given: dict[str, bytes], code: int) -> None:
        if code:
            for each in self.members.values():
                each.assignment = b""
                self._answer_sync(each, {"error_code": code})
            self.rebalance()
            return
        self.state = "Stable"
        for each in self.members.values():
            each.assignment = given.get(each.id, b"")
            self._answer_sync(each, {"assignment": each.assignment})
            self.heard_of(each)

    def _stored(self, assignments: dict[str, bytes]) -> Stored:
        members = [each.stored() for each in self.members.values()]
        for each in members:
            each.assignment = assignments.get(each.id, b"")
        return Stored(self.generation, self.protocol_type, self.protocol, self.leader, members)

    async def write(self, assignments: dict[str, bytes]) -> int:
        """Write the group with these assignments; return an error code, 0 when other brokers would find it."""
        stored, groups = self._stored(assignments), self._broker.cluster.stored_groups
        # A generation that has begun since is written with its own assignments.
        return await write(self._broker, self._shard, lambda: groups.update({self.name: stored} if self.generation == stored.generation else {}))

    def store(self) -> None:
        """Write the group as it is."""
        if self._broker.connected:
            assignments = {each.id: each.assignment for each in self.members.values()}
            self._broker.cluster.stored_groups[self.name] = self._stored(assignments)

    def replace(self, old: Member, member_id: str) -> Member:
        """Have a new process take the place of a member with its instance id."""
        self._answer_join(old, {"error_code": FENCED_INSTANCE})
        self._answer_sync(old, {"error_code": FENCED_INSTANCE})
        if old.timer is not None:
            old.timer.cancel()
        self.members = {member_id if each == old.id else each: member for each, member in self.members.items()}
        new = self.members[member_id] = old.stored()
        new.id = member_id
        if self.leader == old.id:
            self.leader = member_id
        self.heard_of(new)
        return new

    def _answer_join(self, member: Member, answer: Answer) -> None:
        joining, member.joining = member.joining, None
        if joining is not None and not joining.done():
            joining.set_result({**_REFUSED, "member_id": member.id, **answer})

    def _answer_sync(self, member: Member, answer: Answer) -> None:
        syncing, member.syncing = member.syncing, None
        if syncing is not None and not syncing.done():
            syncing.set_result(answer)


# --- requests -------------------------------------------------------------------------------------------------------------------------------


def find(broker: Broker, name: str) -> tuple[int, Group | None]:
    """Return a group, or the error code of a broker that does not coordinate it."""
    code = broker.cluster.injected("group")
    if code:
        return code, None
    if not name:
        return _INVALID_GROUP, None
    code, shard = shard_of(broker, OFFSETS_TOPIC, name)
    if shard is None:
        return code, None
    group: Any = shard.live.get(name)
    if group is None:
        group = shard.live[name] = Group(name, broker, shard)
    return 0, group


def _new_id(broker: Broker, prefix: str) -> str:
    return f"{prefix}-{UUID(int=broker.cluster.random.getrandbits(128), version=4)}"


@answers("JoinGroup")
async def join_group(broker: Broker, call: Call) -> Answer:  # noqa: PLR0911 - each is a case of its own
    """Have a member join; the answer comes when the next generation begins."""
    fields = call.fields
    refused = {**_REFUSED, "member_id": fields["member_id"]}
    if not _SHORTEST_MS <= fields["session_timeout_ms"] <= _LONGEST_MS:
        return {**refused, "error_code": _INVALID_SESSION_TIMEOUT}
    code, group = find(broker, fields["group_id"])
    if group is None:
        return {**refused, "error_code": code}
    protocols = [(each["name"], each["metadata"]) for each in fields["protocols"]]
    member_id, instance = fields["member_id"], fields["group_instance_id"]
    if not group.supports(fields["protocol_type"], protocols):
        return {**refused, "error_code": _INCONSISTENT_PROTOCOL}
    if not member_id:
        return await _join_new(broker, group, call, protocols)
    if member_id in group.pending:
        group.uninvite(member_id)
        return await group.join(_member(call, member_id), protocols)
    code = group.judge(member_id, instance)
    if code:
        return {**refused, "error_code": code}
    member = group.members[member_id]
    member.rebalance_ms, member.session_ms = fields["rebalance_timeout_ms"], fields["session_timeout_ms"]
    same = member.protocols == protocols
    if (group.state == "CompletingRebalance" and same) or (group.state == "Stable" and same and group.leader != member_id):
        group.heard_of(member)
        return group.generation_of(member)
    return await group.join(member, protocols)


def _member(call: Call, member_id: str) -> Member:
    fields = call.fields
    return Member(
        member_id, fields["group_instance_id"], call.request.client_id, fields["session_timeout_ms"], fields["rebalance_timeout_ms"], []
    )  # fmt: skip


async def _join_new(broker: Broker, group: Group, call: Call, protocols: list[tuple[str, bytes]]) -> Answer:
    fields = call.fields
    group.protocol_type = fields["protocol_type"]
    instance = fields["group_instance_id"]
    if instance is None:
        member_id = _new_id(broker, call.request.client_id)
        group.invite(member_id, fields["session_timeout_ms"])
        return {**_REFUSED, "member_id": member_id, "error_code": _MEMBER_ID_REQUIRED}
    member_id = _new_id(broker, instance)
    old = group.of_instance(instance)
    if old is None:
        return await group.join(_member(call, member_id), protocols)
    leader = group.leader
    new = group.replace(old, member_id)
    new.client_id, new.session_ms, new.rebalance_ms = call.request.client_id, fields["session_timeout_ms"], fields["rebalance_timeout_ms"]
    if group.state == "Stable":
        # It gets its predecessor's assignment; a leader is not told that it leads. The answer waits for the write, as another coordinator reads it.
        new.protocols = protocols
        answer = group.generation_of(new, leader)
        code = await group.write({each.id: each.assignment for each in group.members.values()})
        return {**_REFUSED, "member_id": member_id, "error_code": code} if code else answer
    return await group.join(new, protocols)


@answers("SyncGroup")
async def sync_group(broker: Broker, call: Call) -> Answer:
    """Answer with the member's assignment."""
    fields = call.fields
    code, group = find(broker, fields["group_id"])
    if group is not None:
        code = group.judge(fields["member_id"], fields["group_instance_id"], fields["generation_id"])
    if code or group is None:
        return {"error_code": code, "assignment": b""}
    assignments = {each["member_id"]: each["assignment"] for each in fields["assignments"]}
    return {"assignment": b"", **await group.sync(group.members[fields["member_id"]], assignments)}


@answers("Heartbeat")
async def heartbeat(broker: Broker, call: Call) -> Answer:
    """Note that a member is there; tell it of a rebalance."""
    fields = call.fields
    code, group = find(broker, fields["group_id"])
    if group is not None:
        code = group.judge(fields["member_id"], fields["group_instance_id"], fields["generation_id"])
        if not code:
            group.heard_of(group.members[fields["member_id"]])
            if broker.isolated and broker.fenced:
                broker.cluster.misled[fields["member_id"]] = asyncio.get_running_loop().time()
            code = REBALANCE if group.state == "PreparingRebalance" else 0
    return {"error_code": code}


@answers("LeaveGroup")
async def leave_group(broker: Broker, call: Call) -> Answer:
    """Have members leave."""
    fields = call.fields
    code, group = find(broker, fields["group_id"])
    if group is None:
        return {"error_code": code}
    found = []
    for each in fields["members"]:
        member_id, instance = each["member_id"], each["group_instance_id"]
        if member_id in group.pending:
            code = 0
            group.uninvite(member_id)
        elif instance is not None and not member_id and (current := group.of_instance(instance)) is not None:
            code = 0
            group.remove(current)
        else:
            code = group.judge(member_id, instance)
            if not code:
                group.remove(group.members[member_id])
        found.append({"member_id": member_id, "group_instance_id": instance, "error_code": code})
    return {"error_code": 0, "members": found}


@answers("DescribeGroups")
async def describe_groups(broker: Broker, call: Call) -> Answer:
    """Answer with the state of groups, and their members."""
    found = []
    for name in call.fields["groups"]:
        code, group = find(broker, name)
        shown: Answer = {"error_code": code, "group_id": name, "state": "", "protocol_type": "", "protocol": "", "operations": _UNKNOWN_OPERATIONS}
        if group is not None:
            stable = group.state == "Stable"
            shown["state"] = group.state if group.known else "Dead"
            shown["protocol_type"] = group.protocol_type
            shown["protocol"] = group.protocol if stable else ""
            shown["members"] = [
                {
                    "member_id": each.id,
                    "client_id": each.client_id,
                    "host": "/10.0.0.1",
                    "metadata": each.metadata(group.protocol) if stable else b"",
                    "assignment": each.assignment,
                }
                for each in group.members.values()
            ]
            if call.fields["include_operations"]:
                shown["operations"] = _OPERATIONS
        found.append(shown)
    return {"groups": found}


@answers("ListGroups")
async def list_groups(broker: Broker, call: Call) -> Answer:
    """Answer with the groups that this broker coordinates."""
    cluster = broker.cluster
    names = {**cluster.stored_groups, **cluster.offsets}
    found = []
    for name in names:
        code, shard = shard_of(broker, OFFSETS_TOPIC, name)
        if shard is not None and not code:
            stored = cluster.stored_groups.get(name)
            found.append({"group_id": name, "protocol_type": "" if stored is None else stored.protocol_type})
    return {"groups": found}
