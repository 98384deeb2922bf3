"""An assignor and a grouper of a user, in instances of one app."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from ks_actors import (
    GroupState,
    HealthReason,
    Joined,
    MemberFacts,
    MemberTasks,
    Produced,
    QueryFailed,
    StickyTaskAssignor,
    StreamsBuilder,
    StreamsConfig,
    TaskId,
    TopologyError,
    serdes,
)
from ks_actors._errors import StreamsError
from ks_actors.log import TopicPartition
from ks_actors.testing import AppHarness
from ks_actors.topology import Topology
from ks_actors.web._graph import Layout
from tests.ks_actors.runtime.helpers import GUARANTEES, STRINGS, counting, in_app, in_virtual_time
from tests.waiting import until

STRINGS_OUT = Produced(serdes.STRING, serdes.STRING)
REUSE = {"topology_optimization": "reuse.ktable.source.topics"}
KEYS = [f"key-{number}" for number in range(24)]


class Groups:
    """A grouper by a function from a topic's partition and its count to the number of its task."""

    def __init__(self, name: str, number: Callable[[str, int, Mapping[str, int]], int]) -> None:
        self.name = name
        self.number = number

    def group(self, topics: Mapping[int, Collection[str]], partitions: Mapping[str, int]) -> dict[TaskId, list[TopicPartition]]:
        found: dict[TaskId, list[TopicPartition]] = {}
        for subtopology, names in topics.items():
            for topic in names:
                for number in range(partitions[topic]):
                    task = TaskId(subtopology, self.number(topic, number, partitions))
                    found.setdefault(task, []).append(TopicPartition(topic, number))
        return found


PAIRS = Groups("pairs", lambda _, number, __: number // 2)
TWO = Groups("two", lambda _, number, __: number % 2)
APART = Groups("apart", lambda topic, number, sizes: number if topic == "a" else sizes["a"] + number)


def here(*harnesses: AppHarness) -> list[dict[str, set[int]]]:
    """Return the partitions of each task of instances."""
    return [
        {str(task): {each.partition for each in partitions} for task, partitions in one.app._instance.parts.member.status().tasks.items()}  # type: ignore[union-attr]
        for one in harnesses
    ]


async def write(harness: AppHarness, *topics: str) -> None:
    for topic in topics:
        for key in KEYS:
            await harness.produce(topic, key.encode(), b"v")


async def counts(harness: AppHarness) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for record in await harness.read("out", key=serdes.STRING, value=serdes.LONG):
        assert record.key is not None
        assert record.value is not None
        found.setdefault(record.key, []).append(record.value)
    return found


# --- groupers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
@in_app(counting("in_memory"), topics={"in": 6, "out": 1}, grouper=PAIRS, commit_interval_ms=100)
async def test_a_grouper_splits_a_topic_and_its_state_through_rebalances_and_restarts(harness: AppHarness, guarantee: str) -> None:
    """Each task reads its two partitions and has their state, wherever it runs; the changelog has a partition for each task."""
    del guarantee
    await write(harness, "in")
    await harness.caught_up()
    assert here(harness) == [{"0_0": {0, 1}, "0_1": {2, 3}, "0_2": {4, 5}}]
    described = await harness.log.describe_topics(["app-counts-changelog"])
    assert described["app-counts-changelog"].partitions == 3
    assert Layout(harness.app).task_of(TopicPartition("in", 3)) == TaskId(0, 1)
    async with harness.another() as other:
        await until(lambda: sorted(map(len, here(harness, other))) == [1, 2])
        await write(harness, "in")
        await harness.caught_up()
        for key in KEYS:
            assert [await of_key(one, key) for one in (harness, other)].count(2) == 1
        await other.crash()
        await write(harness, "in")
        await harness.restart()
        await harness.caught_up()
    assert here(harness) == [{"0_0": {0, 1}, "0_1": {2, 3}, "0_2": {4, 5}}]
    assert await counts(harness) == {key: [1, 2, 3] for key in KEYS}


async def of_key(harness: AppHarness, key: str) -> int | None:
    """Return the count of a key, None if the instance does not have the key's task."""
    try:
        return await harness.app.store("counts", serdes.STRING, serdes.LONG).get(key)
    except QueryFailed:
        return None


@in_app(counting("in_memory", topics=["a", "b"]), topics={"a": 2, "b": 3, "out": 1}, grouper=APART, commit_interval_ms=100)
async def test_a_grouper_gives_each_topic_tasks_of_its_own(harness: AppHarness) -> None:
    """The tasks of one subtopology are as many as both topics have partitions, each with state of its own."""
    await write(harness, "a", "b")
    await harness.caught_up()
    assert here(harness) == [{"0_0": {0}, "0_1": {1}, "0_2": {0}, "0_3": {1}, "0_4": {2}}]
    assert await counts(harness) == {key: [1, 1] for key in KEYS}
    assert await of_key(harness, KEYS[0]) == 1
    described = await harness.log.describe_topics(["app-counts-changelog"])
    assert described["app-counts-changelog"].partitions == 5


@in_app(counting("in_memory"), topics={"in": 2, "out": 1}, grouper=TWO, commit_interval_ms=100, metadata_max_age_ms=1_000)
async def test_new_partitions_of_a_topic_join_the_tasks_that_there_are(harness: AppHarness) -> None:
    """Where the grouper has as many tasks as before, a topic may grow, and state need not."""
    await write(harness, "in")
    await harness.caught_up()
    harness.create_partitions({"in": 5})
    await until(lambda: here(harness) == [{"0_0": {0, 2, 4}, "0_1": {1, 3}}])
    await harness.produce("in", b"new", b"v", partition=4)
    await harness.caught_up()
    assert (await counts(harness))["new"] == [1]


@in_app(counting("in_memory"), topics={"in": 4, "out": 1}, grouper=PAIRS, commit_interval_ms=100)
async def test_an_upgrade_with_another_grouper_is_refused(harness: AppHarness) -> None:
    """A newcomer beside the others; and, once all members have stopped, any grouping that takes partitions away from their state."""
    await write(harness, "in")
    await harness.caught_up()
    tasks = here(harness)
    other = harness.another(start=False)
    other._options = {**other._options, "grouper": TWO}
    async with other:
        with pytest.raises(TopologyError, match=r"partition grouper 'two', and the other group members have the partition grouper 'pairs'"):
            await other.start()
    await write(harness, "in")
    await harness.caught_up()
    assert here(harness) == tasks
    await harness.close(leave_group=True)
    for grouper, message in (
        (TWO, r"in-1 is grouped into task 0_1, and its records up to offset \d+ went to the state of task 0_0"),
        (None, "app-counts-changelog has 2 partitions and needs 4"),
        (Groups("one", lambda *_: 0), "app-counts-changelog has 2 partitions and needs 1, for the tasks of the partition grouper 'one'"),
    ):
        harness._options["grouper"] = grouper
        with pytest.raises(TopologyError, match=message):
            await harness.start()
    harness._options["grouper"] = PAIRS
    await harness.start()
    await write(harness, "in")
    await harness.caught_up()
    assert await counts(harness) == {key: [1, 2, 3] for key in KEYS}


def stateless() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to("out", STRINGS_OUT)
    return builder.build()


@in_app(stateless(), topics={"in": 4, "out": 1}, grouper=PAIRS)
async def test_without_state_partitions_may_be_grouped_anew(harness: AppHarness) -> None:
    """Once all members have stopped: nothing is kept by task."""
    await write(harness, "in")
    await harness.caught_up()
    await harness.close(leave_group=True)
    harness._options["grouper"] = TWO
    await harness.start()
    await write(harness, "in")
    await harness.caught_up()
    assert here(harness) == [{"0_0": {0, 2}, "0_1": {1, 3}}]
    assert len(await harness.read("out")) == 2 * len(KEYS)


def joined(**config: Any) -> Topology:
    builder = StreamsBuilder()
    table = builder.table("rows", STRINGS)
    builder.stream("in", STRINGS).join(table, lambda left, right: f"{left}{right}", Joined(serdes.STRING, serdes.STRING, serdes.STRING)).to(
        "out", STRINGS_OUT
    )
    return builder.build(StreamsConfig(application_id="app", **config) if config else None)


def by_foreign_key() -> Topology:
    builder = StreamsBuilder()
    left, right = builder.table("in", STRINGS), builder.table("rows", STRINGS)
    left.join(right, lambda one, two: f"{one}{two}", foreign_key=lambda value: value).to_stream().to("out", STRINGS_OUT)
    return builder.build()


@pytest.mark.parametrize(
    ("topology", "grouper", "message", "config"),
    [
        (joined(), APART, "partitions 0 of in, rows are not in one task", {}),
        (joined(**REUSE), PAIRS, "restores a table from its source topic", REUSE),
        (by_foreign_key(), PAIRS, "joins by a foreign key", {}),
    ],
)
@in_virtual_time
async def test_a_grouping_by_which_results_would_be_wrong_is_refused(topology: Topology, grouper: Any, message: str, config: Any) -> None:
    """At the start, before anything is made."""
    named = Groups("in-apart", lambda topic, number, sizes: number + (topic == "in") * sizes["rows"]) if grouper is APART else grouper
    harness = AppHarness(topology, start=False, topics={"in": 4, "rows": 4, "out": 1}, grouper=named, **config)
    async with harness:
        with pytest.raises(TopologyError, match=message):
            await harness.start()


@in_app(joined(), topics={"in": 4, "rows": 4, "out": 1}, grouper=PAIRS, commit_interval_ms=100, num_standby_replicas=1)
async def test_joined_topics_are_grouped_together(harness: AppHarness) -> None:
    """A row and the records that it is joined with meet in one task."""
    async with harness.another() as other:
        await until(lambda: sorted(map(len, here(harness, other))) == [1, 1])
        await write(harness, "rows")
        await harness.caught_up()
        await write(harness, "in")
        await harness.caught_up()
    assert sorted(str(record.key) for record in await harness.read("out", key=serdes.STRING)) == sorted(KEYS)


# --- assignors ------------------------------------------------------------------------------------------------------------


def in_zone(task: TaskId, member: MemberFacts) -> bool:
    return task.partition > 0 or member.tags.get("zone") == "x"


async def later(condition: Callable[[], object]) -> None:
    """Wait until a condition holds, for up to ten minutes of virtual time."""
    async with asyncio.timeout(600):
        while not condition():
            await asyncio.sleep(0.1)


def failures(harness: AppHarness) -> float:
    (found,) = harness.app.metrics().find("assignor-failures-total")
    assert isinstance(found.value, float | int)
    return found.value


@in_app(
    counting("in_memory"),
    topics={"in": 3, "out": 1},
    assignor=StickyTaskAssignor(may=in_zone),
    client_tags={"zone": "x"},
    commit_interval_ms=100,
)
async def test_a_task_stays_pinned_to_a_tag_through_rebalances_and_failures(harness: AppHarness) -> None:
    """Without a member that may have it, it waits for one, and other tasks stay; health and metrics tell of it."""
    async with harness.another(client_tags={"zone": "y"}) as other:
        await later(lambda: sorted(map(len, here(harness, other))) == [1, 2])
        assert "0_0" in here(harness)[0]
        await write(harness, "in")
        await harness.caught_up()
        (kept,) = here(other)
        assert other.app.health().ready
        await harness.crash()
        await later(lambda: failures(other))
        (problem,) = [each for each in other.app.health().problems if each.reason is HealthReason.ASSIGNMENT]
        assert "StickyTaskAssignor raised StreamsError: no member of the group may have this task (task 0_0)" in problem.text
        assert here(other) == [kept]
        await write(harness, "in")
        await harness.restart()
        await harness.caught_up()
        assert "0_0" in here(harness)[0]
        assert other.app.health().ready
        assert sorted(task for each in here(harness, other) for task in each) == ["0_0", "0_1", "0_2"]
    assert await counts(harness) == {key: [1, 2] for key in KEYS}


@in_virtual_time
async def test_a_group_without_a_member_for_a_task_does_not_start() -> None:
    """The error of the assignor is that of the start."""
    harness = AppHarness(counting("in_memory"), topics={"in": 3, "out": 1}, start=False, assignor=StickyTaskAssignor(may=in_zone))
    async with harness:
        with pytest.raises(StreamsError, match=r"no member of the group may have this task.*There is no earlier assignment to keep"):
            await harness.start()


class Together:
    """An assignor of tasks by number: tasks of one number are together, and their standbys are on the next member."""

    def __init__(self) -> None:
        self.fails = 0

    def assign(self, group: GroupState) -> dict[str, MemberTasks]:
        if self.fails:
            self.fails -= 1
            raise OSError("the plan cannot be read")
        names = sorted(group.members, key=lambda member: group.members[member].process_id)

        def of(task: TaskId, step: int) -> str:
            return names[(task.partition + step) % len(names)]

        return {
            name: MemberTasks(
                [task for task in group.tasks if of(task, 0) == name],
                [task for task, facts in group.tasks.items() if facts.stateful and of(task, 1) == name != of(task, 0)],
            )
            for name in names
        }


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_tasks_of_one_number_stay_together_though_the_assignor_fails_now_and_then(guarantee: str) -> None:
    """Its standbys are kept as well, and after a failure the group asks again by itself."""
    together = Together()

    @in_app(
        counting("in_memory", repartition=True),
        topics={"in": 4, "out": 1},
        assignor=together,
        commit_interval_ms=100,
        processing_guarantee=guarantee,
    )
    async def run(harness: AppHarness) -> None:
        async with harness.another() as other, harness.another() as third:
            every = (harness, other, third)
            await later(lambda: sorted(map(len, here(*every))) == [2, 2, 4])
            for number in range(2):
                await write(harness, "in")
                await harness.caught_up()
                for tasks in here(*every):
                    assert {f"0_{task[2:]}" for task in tasks} | {f"1_{task[2:]}" for task in tasks} == set(tasks)
                if number == 0:
                    together.fails = 3
                    before = here(harness, third)
                    await other.crash()
                    await later(lambda: failures(harness) >= 3)
                    assert here(harness, third) == before
                    await later(lambda: sorted(map(len, here(harness, third))) == [4, 4])
                    assert harness.app.health().ready
                    await other.restart()
                    await later(lambda: sorted(map(len, here(*every))) == [2, 2, 4])
                    await later(lambda: sum(task.standby for one in every for task in one.app.tasks()) == 4)
        assert await counts(harness) == {"v": [*range(1, 2 * len(KEYS) + 1)]}

    run()
