"""A changelog that is deleted and created again under an app that runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import ProductionFailed
from ks_actors.log import NewTopic, TopicPartition
from ks_actors.runtime.commit import ChangelogEnds
from ks_actors.runtime.messages import Written
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import Asked, by_key, counting, feed_all, in_app, in_virtual_time
from tests.ks_actors.runtime.stores.test_restoring import records

CHANGELOG = "app-counts-changelog"


async def make_anew(harness: AppHarness) -> None:
    await feed_all(harness, "in", records("a", "a", "b"))
    harness.delete_topics(CHANGELOG)
    await harness.log.create_topics([NewTopic(CHANGELOG, 1)])


@in_app(counting(), topics={"in": 1, "out": 1})
async def test_a_changelog_that_is_made_anew_ends_the_app(harness: AppHarness, guarantee: str) -> None:
    """By ProductionFailed, before a commit: a restore from the new one would miss the rows that have not changed since."""
    await make_anew(harness)
    await harness.produce_all("in", records("a"))
    error = await harness.ended()
    assert isinstance(error, ProductionFailed)
    assert (error.topic, error.partition) == (CHANGELOG, 0)
    assert "deleted and created again" in str(error)
    assert harness.log._groups.get("app").committed()[TopicPartition("in", 0)].offset == 3


@in_virtual_time
async def test_a_handler_may_go_on_with_a_changelog_that_was_made_anew(guarantee: str) -> None:
    """It is asked once, and the state of the app is as it was."""
    asked = Asked()

    async with AppHarness(counting(), topics={"in": 1, "out": 1}, processing_guarantee=guarantee, uncaught_handler=asked) as harness:
        await make_anew(harness)
        await feed_all(harness, "in", records("a", "b"))
        assert [type(error) for error in asked] == [ProductionFailed]
        assert {key: max(counts) for key, counts in by_key(await harness.read("out")).items()} == {"a": 3, "b": 2}


@in_app(counting(), topics={"in": 1, "out": 1})
async def test_an_app_that_has_written_nothing_yet_knows_the_end_of_what_it_restored(harness: AppHarness, guarantee: str) -> None:
    """It ends as well at its first write, however many records it writes: the state is right, and the changelog is not."""
    await feed_all(harness, "in", records("a", "a", "b"))
    await harness.restart()
    await harness.caught_up()
    harness.delete_topics(CHANGELOG)
    await harness.log.create_topics([NewTopic(CHANGELOG, 1)])
    await harness.produce_all("in", records(*"acdefghijk"))
    error = await harness.ended()
    assert isinstance(error, ProductionFailed)
    assert "deleted and created again" in str(error)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(1, 5)), max_size=30))
def test_a_record_below_the_known_end_is_an_error(steps: list[tuple[str, int, int]]) -> None:
    """Of each loss once; records of others in between, as the marks of transactions, are none. Other partitions do not count."""
    ends = ChangelogEnds()
    stored = dict.fromkeys("ab", 0)
    log = dict.fromkeys("ab", 0)
    for topic, way, count in steps:
        partition = TopicPartition(topic, 0)
        lost = False
        if way == 0:
            lost, log[topic] = stored[topic] > 0, 0
        log[topic] += count + way // 2
        known = {partition: stored[topic]}
        written = {partition: Written(log[topic], count), TopicPartition("x", 0): Written(0, 9)}
        if lost:
            with pytest.raises(ProductionFailed, match=f"{topic}-0 was "):
                ends.check(known, written)
        ends.check(known, written)
        stored[topic] = log[topic]
