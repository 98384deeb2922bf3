"""Topics that an app is going to write to, and that do not exist."""

from __future__ import annotations

import pytest

from ks_actors import InstanceState, MissingSinkTopics, MissingSourceTopics
from ks_actors.dsl import StreamsBuilder
from ks_actors.testing import AppHarness, run_app
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, counting, echo, feed, in_virtual_time


@in_virtual_time
async def test_a_start_without_the_topics_of_sinks_fails(guarantee: str) -> None:
    """By one error that names each topic with the nodes that write to it, and the remedy; no topic is made, and no member joins."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.to("one", STRINGS_OUT)
    stream.to("there", STRINGS_OUT)
    stream.to("two", STRINGS_OUT)
    stream.filter(lambda key, value: key == value).to("one", STRINGS_OUT)
    stream.group_by_key().count()
    async with AppHarness(
        builder.build(), topics={"in": 1, "there": 1}, start=False, processing_guarantee=guarantee, errors_dead_letter_queue_topic_name="letters"
    ) as harness:
        with pytest.raises(MissingSinkTopics) as raised:
            await harness.start()
        text = str(raised.value)
        assert "one (node KSTREAM-SINK-0000000001, node KSTREAM-SINK-0000000005)" in text
        assert "two (node KSTREAM-SINK-0000000003)" in text
        assert "there (" not in text
        assert "letters (errors_dead_letter_queue_topic_name)" in text
        assert 'App(…, topics={"letters": 4, "one": 4, "two": 4}) does, and so does ks-actors topics create' in text
        assert "topics create MODULE:NAME --topic letters=4 --topic one=4 --topic two=4" in text
        assert harness.app.state is InstanceState.ERROR
        assert set(await harness.log.describe_topics()) == {"in", "there"}
        assert harness.log._groups.get("app")._members == {}
        harness.create_topics({"one": 1, "two": 1, "letters": 1})
        await harness.restart()
        await feed(harness, "in", "a", "1")
        assert [record.value for record in await harness.read("two")] == ["1"]


def test_missing_packages_for_reading_are_reported_first() -> None:
    """A topic that is read by its own error, as before."""
    with pytest.raises(MissingSourceTopics, match=r'topics=\{"in": 4\}\) does, and so does .* MODULE:NAME --topic in=4'):
        run_app(lambda _: pytest.fail("it started"), echo())


def test_topics_that_the_app_makes_or_a_function_names_are_not_missed() -> None:
    """Repartition topics are the app's own; which topic a function is going to name nobody knows."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to(lambda *_: "later", STRINGS_OUT)

    async def test(harness: AppHarness) -> None:
        harness.create_topics({"later": 1})
        await feed(harness, "in", "a", "1")
        assert len(await harness.read("later")) == 1

    run_app(test, builder.build(), topics={"in": 1})
    run_app(lambda harness: harness.caught_up(), counting(repartition=True), topics={"in": 1, "out": 1})
