"""Versions of a topology side by side: members that read more topics, fewer, or have more operators, restarted one by one in any order."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors import Consumed, Grouped, Materialized, Produced, StreamsBuilder, TopologyError
from ks_actors.log import TopicPartition
from ks_actors.serdes import LONG, STRING
from ks_actors.testing import AppHarness, run_app
from ks_actors.topology import Topology
from tests.examples_of import examples
from tests.ks_actors.runtime.helpers import GUARANTEES, feed, in_app, in_virtual_time

STRINGS = Consumed(STRING, STRING)
PARTITIONS = 3
TOPICS = ("orders", "returns", "payments")
CREATED = {**dict.fromkeys(TOPICS, PARTITIONS), "out": 2, "counts": 2}


def version(*topics: str, counted: bool = False, by_value: bool = False) -> Topology:
    """Hand on all records of some topics; `counted` by key as well, `by_value` behind a repartition, in a subtopology of its own."""
    builder = StreamsBuilder()
    stream = builder.stream(topics, STRINGS)
    stream.to("out", Produced(STRING, STRING))
    if counted:
        stream.group_by_key().count(Materialized("counts", STRING, LONG)).to_stream().to("counts", Produced(STRING, LONG))
    if by_value:
        table = stream.group_by(lambda _, value: value, Grouped(STRING, STRING, name="by-value")).count(Materialized("values", STRING, LONG))
        table.to_stream().to("counts", Produced(STRING, LONG))
    return builder.build()


ONE, TWO = version("orders"), version("orders", "returns")
CHANGES = {
    "a topic more": (ONE, TWO),
    "a topic less": (TWO, ONE),
    "another topic": (TWO, version("orders", "payments")),
    "a count more": (ONE, version("orders", counted=True)),
    "a count less": (version("orders", counted=True), ONE),
    "a repartition more": (ONE, version("orders", by_value=True)),
    "a topic and a count more": (ONE, version("orders", "returns", counted=True)),
}


class Sent:
    """Write records with values of their own, and know them."""

    def __init__(self) -> None:
        self.count = 0
        self.values: dict[str, list[str]] = {topic: [] for topic in TOPICS}

    async def some(self, harness: AppHarness, topics: Sequence[str]) -> None:
        for topic in topics:
            for number in range(PARTITIONS):
                value = f"{topic}-{self.count}"
                self.count += 1
                self.values[topic].append(value)
                await harness.produce(topic, f"k{number}".encode(), value.encode(), partition=number)


def reads(topology: Topology) -> set[str]:
    return {topic for each in topology.subtopologies() for topic in each.source_topics}.intersection(TOPICS)


async def members(stack: AsyncExitStack, first: AppHarness, count: int) -> list[AppHarness]:
    return [first, *[await stack.enter_async_context(first.another()) for _ in range(count - 1)]]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=lambda order: "".join(map(str, order)))
@pytest.mark.parametrize("change", CHANGES)
@in_virtual_time
async def test_a_rolling_upgrade_reads_everything_once(change: str, order: tuple[int, ...], guarantee: str) -> None:
    """Three members are restarted one by one, with any leader: all records of all topics that the new version reads come out, none twice."""
    before, after = CHANGES[change]
    both = sorted(reads(before) & reads(after))
    async with AppHarness(before, topics=CREATED, processing_guarantee=guarantee, max_poll_interval_ms=10_000) as harness:
        sent = Sent()
        async with AsyncExitStack() as stack:
            three = await members(stack, harness, 3)
            await sent.some(harness, sorted(reads(before)))
            await harness.caught_up()
            for index in order:
                await three[index].close()
                # Both versions read these, whoever has them.
                await sent.some(harness, both)
                await three[index].restart(after)
                await sent.some(harness, sorted(reads(after)))
            await harness.caught_up()
            for each in three:
                assert each.app.state.name == "RUNNING"
            found = Counter(record.value for record in await harness.read("out"))
        wanted = {value for topic in reads(after) for value in sent.values[topic]}
        missing = wanted - found.keys()
        assert not missing
        assert [value for value, times in found.items() if times > 1] == []


@in_virtual_time
async def test_a_version_that_numbers_its_subtopologies_differently_is_refused(guarantee: str) -> None:
    """The newcomer ends by an error with reason and remedy, before anything is lost; the others go on."""

    def independent(*topics: str) -> Topology:
        builder = StreamsBuilder()
        for topic in topics:
            builder.stream(topic, STRINGS).to("out", Produced(STRING, STRING))
        return builder.build()

    async with AppHarness(independent("orders", "payments"), topics=CREATED, processing_guarantee=guarantee) as harness:
        sent = Sent()
        async with harness.another() as second:
            await sent.some(harness, ["orders", "payments"])
            await harness.caught_up()
            await second.close()
            with pytest.raises(TopologyError, match=r"topic orders belongs to subtopology 1 here, and to subtopology 0 there.*stop all members"):
                await second.restart(independent("returns", "orders", "payments"))
            await sent.some(harness, ["orders", "payments"])
            await harness.app.wait_until_caught_up()
            assert Counter(record.value for record in await harness.read("out")) == Counter([*sent.values["orders"], *sent.values["payments"]])


@pytest.mark.parametrize("change", ["a topic more", "a topic less"])
@in_virtual_time
async def test_static_members_that_come_back_with_another_version_get_its_tasks(change: str, guarantee: str) -> None:
    """The group gives a static member its earlier partitions, which its new version does not read: it asks once more."""
    before, after = CHANGES[change]
    async with AppHarness(before, topics=CREATED, processing_guarantee=guarantee, group_instance_id="first", session_timeout_ms=60_000) as harness:
        sent = Sent()
        async with harness.another(group_instance_id="second") as second:
            await sent.some(harness, sorted(reads(before)))
            await harness.caught_up()
            for each in (second, harness):
                await each.close()
                await each.restart(after)
            await sent.some(harness, sorted(reads(after)))
            await harness.caught_up()
            found = Counter(record.value for record in await harness.read("out"))
        assert found == Counter({*(value for topic in reads(before) for value in sent.values[topic]), *found.keys()})
        assert not {value for topic in reads(after) for value in sent.values[topic]} - found.keys()


VERSIONS = [ONE, TWO, version("orders", "payments"), version("orders", counted=True), version(*TOPICS), version(*TOPICS, by_value=True)]


@pytest.mark.extended
@settings(max_examples=examples(12))
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, len(VERSIONS) - 1), st.booleans()), max_size=6),
    st.sampled_from(GUARANTEES),
    st.integers(0, 1 << 30),
)
def test_any_sequence_of_versions_ends_with_each_partition_read_once(steps: list[tuple[int, int, bool]], guarantee: str, seed: int) -> None:
    """Members are closed or crash, and come back with any version; at the end all have the last one, and each record of its topics came out."""
    last = VERSIONS[steps[-1][1]] if steps else VERSIONS[0]

    async def test(harness: AppHarness) -> None:
        sent = Sent()
        async with AsyncExitStack() as stack:
            three = await members(stack, harness, 3)
            for index, number, crashes in steps:
                await sent.some(harness, TOPICS)
                await (three[index].crash() if crashes else three[index].close())
                await three[index].restart(VERSIONS[number])
            for each in three:
                await each.close()
                await each.restart(last)
            await sent.some(harness, TOPICS)
            await harness.caught_up()
            found = Counter(record.value for record in await harness.read("out"))
            parts = Counter(partition for each in three for task in each.app._metrics.tasks.values() for partition in task.group.queues)
        assert not {value for topic in reads(last) for value in sent.values[topic]} - found.keys()
        assert {partition for partition in parts if partition.topic in TOPICS} == {
            TopicPartition(topic, number) for topic in reads(last) for number in range(PARTITIONS)
        }
        assert set(parts.values()) == {1}
        if guarantee == "exactly_once_v2":
            assert [value for value, times in found.items() if times > 1] == []

    run_app(test, VERSIONS[0], topics=CREATED, processing_guarantee=guarantee, max_poll_interval_ms=10_000, seed=seed)


@pytest.mark.parametrize("seed", range(12))
@in_app(ONE, topics=CREATED, processing_guarantee="exactly_once_v2")
async def test_a_task_may_be_ready_before_the_start_goes_on(harness: AppHarness, seed: int) -> None:
    """The group's first event may come while the app is still being put together: in any order, it starts."""
    async with harness.another() as second, harness.another():
        await second.crash()
        await second.restart()
        await feed(harness, "orders", "k", "v")
        assert second.app.state.name == "RUNNING"
