"""A static member that returns asks for another assignment if the stored one was made for other values."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import pytest
from msgspec.structs import replace

from ks_actors import TaskId
from ks_actors.assignment import GroupAssignor, GroupState, MemberTasks, MemberTraits, TaskAssignor, TopologyInfo, decode_list
from ks_actors.log import MemberAssignment, MemberInfo, NewTopic
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.runtime.membership._assignment_check import AssignmentCheck
from ks_actors.runtime.membership._group_view import GroupView
from ks_actors.task import TopicSizes
from tests.ks_actors.assignment.test_user_data_versions import TOPOLOGY, lead_3, lead_4, new

TRAITS = MemberTraits(endpoint="http://a:1", host="host", tags={"zone": "a"}, rack="r")
EVERY = [TaskId(0, number) for number in range(4)]


class Other:
    """Another assignor; nobody calls it."""

    def assign(self, group: GroupState) -> Mapping[str, MemberTasks]:
        raise NotImplementedError


def view(
    topology: TopologyInfo = TOPOLOGY, traits: MemberTraits = TRAITS, *, replicas: int = 1, assignor: TaskAssignor | None = None, static: bool = True
) -> GroupView:
    basis = GroupAssignor(topology, replicas=replicas, assignor=assignor).basis
    check = AssignmentCheck(lambda: topology, TopicSizes({"t": 4}.get), lambda _: frozenset())
    return GroupView("a", 1000, check, traits, None, basis if static else None)


@pytest.fixture
async def log() -> AsyncIterator[EmbeddedLog]:
    async with EmbeddedLog() as made:
        await made.create_topics([NewTopic("t", 4)])
        yield made


def given(*owned: TaskId, lead: Callable[[Sequence[MemberInfo]], Mapping[str, MemberAssignment]] = lead_4) -> MemberAssignment:
    """Return what a member with these tasks is assigned beside a newcomer."""
    return lead([new("a", *owned, endpoint="http://a:1"), new("b")])["a"]


async def test_a_member_that_is_as_it_was_does_not_ask(log: EmbeddedLog) -> None:
    """Its host may have another name, as that of a supervisor that has been restarted."""
    assert not await view().is_outdated(given(*EVERY[:2]), log)
    moved = MemberTraits(TRAITS.endpoint, "another", TRAITS.tags, TRAITS.rack)
    assert not await view(traits=moved).is_outdated(given(), log)


@pytest.mark.parametrize(
    "now",
    [
        view(traits=MemberTraits("http://a:2", "host", {"zone": "a"}, "r")),
        view(traits=MemberTraits("http://a:1", "host", {"zone": "b"}, "r")),
        view(traits=MemberTraits("http://a:1", "host", {"zone": "a"}, "s")),
        view(traits=MemberTraits("http://a:1", "host", {"zone": "a"}, "r", "halves")),
        view(TopologyInfo.of({0: ["t"], 1: ["u"]}, (), [0])),
        view(TopologyInfo.of({0: ["t"]})),
        view(replicas=2),
        view(assignor=Other()),
    ],
    ids=["endpoint", "tags", "rack", "grouper", "topics", "state", "standbys", "assignor"],
)
async def test_a_member_that_returns_with_other_values_asks_once(now: GroupView, log: EmbeddedLog) -> None:
    """Later assignments follow from what it reports, until it has been out of the group."""
    assignment = given()
    assert await now.is_outdated(assignment, log)
    assert not await now.is_outdated(assignment, log)
    now.forget()
    assert await now.is_outdated(assignment, log)


async def test_a_member_whose_topic_has_grown_asks(log: EmbeddedLog) -> None:
    """The leader may have been away, too."""
    await log.create_partitions({"t": 5})
    assert await view().is_outdated(given(), log)


async def test_a_member_that_was_to_give_tasks_up_asks(log: EmbeddedLog) -> None:
    """It no longer has them, and the group waits until it has given them up."""
    assert await view().is_outdated(given(*EVERY), log)


async def test_a_member_without_an_instance_id_does_not_ask(log: EmbeddedLog) -> None:
    """Each of its joins makes the group assign."""
    assert not await view(static=False).is_outdated(given(*EVERY), log)


async def test_a_member_asks_once_whose_leader_gives_no_basis(log: EmbeddedLog) -> None:
    """As one of an earlier release: nothing says whether the assignment fits."""
    now, assignment = view(), given(lead=lead_3)
    assert decode_list(assignment) == replace(decode_list(assignment), basis=0)
    assert [await now.is_outdated(assignment, log) for _ in range(3)] == [True, False, False]
