"""The topics that an app makes for itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pytest

from ks_actors import Consumed, Grouped, Materialized, StreamsBuilder, StreamsConfig, TimeWindows, Topology, TopologyError, UnlimitedWindows, serdes
from ks_actors.log import Log, NewTopic, TopicPartition, open_log
from ks_actors.records._task_id import TaskId
from ks_actors.runtime import InstanceState
from ks_actors.runtime.membership._assignment_check import AssignmentCheck
from ks_actors.runtime.shared._internal_topics import prepare_topics
from ks_actors.runtime.shared._topic_configs import misfits
from ks_actors.task import AppTopics
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import counting, in_app


class _Slow:
    """A log on which somebody else always is a moment faster, and makes topics of so many partitions."""

    def __init__(self, log: Log, partitions: int) -> None:
        self._log = log
        self._partitions = partitions
        self.describe_topics = log.describe_topics

    async def create_topics(self, topics: Iterable[NewTopic], /) -> None:
        wanted: Sequence[NewTopic] = list(topics)
        await self._log.create_topics([NewTopic(topic.name, self._partitions, topic.configs) for topic in wanted])
        await self._log.create_topics(wanted)


def topics_of(topology: Topology) -> AppTopics:
    return AppTopics(topology, StreamsConfig(application_id="app"), lambda _: None)


def test_a_topic_that_a_pattern_has_matched_may_be_gone() -> None:
    """It is assigned, fetched and committed for a while after the app has noticed: a missing topic is no error then, and its readers are known."""
    builder = StreamsBuilder()
    builder.stream("named", Consumed(serdes.STRING, serdes.STRING)).to("out")
    builder.stream(re.compile("in-.*"), Consumed(serdes.STRING, serdes.STRING)).to("out")
    topics = topics_of(builder.build())
    assigned = [TopicPartition(topic, 0) for topic in ("named", "in-a", "in-b")]
    topics.know_topics({"named": 1, "in-a": 1, "in-b": 1})
    topics.know_topics({"named": 1, "in-a": 1})
    assert topics.matched == {"in-a"}
    assert topics.matched_of(assigned) == {"in-a", "in-b"}
    assert topics.source_of("in-b") is topics.source_of("in-a")
    assert AssignmentCheck.of(topics, ()).fit({TaskId(1, 0): tuple(assigned[1:])}) == ({TaskId(1, 0): tuple(assigned[1:])}, False)


@pytest.mark.parametrize("partitions", [3, 2])
async def test_instances_may_start_at_the_same_time(partitions: int) -> None:
    """Topics that another instance makes at the same moment are taken, if they fit."""
    log = open_log("memory://")
    await log.start()
    await log.create_topics([NewTopic("in", 3), NewTopic("out", 1)])
    preparing = prepare_topics(_Slow(log, partitions), topics_of(counting()))  # type: ignore[arg-type]  # it uses no more of it
    if partitions == 3:
        assert (await preparing)["app-counts-changelog"] == 3
    else:
        with pytest.raises(TopologyError, match="app-counts-changelog has 2 partitions and needs 3"):
            await preparing
    await log.close()


async def test_a_window_without_an_end_is_kept_as_long_as_a_log_can_be_told() -> None:
    """Its retention and the addition for changelogs are more than fits: a Kafka would not create the topic."""
    builder = StreamsBuilder()
    words = builder.stream("in", Consumed(serdes.STRING, serdes.STRING)).group_by_key()
    words.windowed_by(UnlimitedWindows.of()).count(Materialized("counts", serdes.STRING, serdes.LONG))
    log = open_log("memory://")
    await log.start()
    await log.create_topics([NewTopic("in", 1)])
    await prepare_topics(log, topics_of(builder.build()))
    changelog = (await log.describe_topics())["app-counts-changelog"]
    await log.close()
    assert changelog.configs["retention.ms"] == str(2**63 - 1)


async def test_internal_topics_have_the_configs_of_the_settings() -> None:
    """Of `topic_configs`: before the app's own defaults, behind what a store asks for and the times that it needs."""
    builder = StreamsBuilder()
    words = builder.stream("in", Consumed(serdes.STRING, serdes.STRING)).group_by(
        lambda key, value: value, Grouped(serdes.STRING, serdes.STRING, "by")
    )
    words.count(Materialized("counts", serdes.STRING, serdes.LONG, changelog_configs={"segment.bytes": "7000000"}))
    words.windowed_by(TimeWindows.of_size_with_no_grace(5)).count(Materialized("windows", serdes.STRING, serdes.LONG))
    settings = {"topic.segment.bytes": 6_000_000, "topic.retention.ms": 5, "topic.min.insync.replicas": 2}
    topics = AppTopics(builder.build(), StreamsConfig.of({"application_id": "app", **settings}), lambda _: None)
    log = open_log("memory://")
    await log.start()
    await log.create_topics([NewTopic("in", 1)])
    await prepare_topics(log, topics)
    found = await log.describe_topics()
    await log.close()
    names = ("segment.bytes", "retention.ms", "min.insync.replicas", "cleanup.policy")
    assert {topic: [found[topic].configs.get(name) for name in names] for topic in found if topic != "in"} == {
        "app-by-repartition": ["6000000", "5", "2", "delete"],
        "app-counts-changelog": ["7000000", "5", "2", "compact"],
        "app-windows-changelog": ["6000000", "86400005", "2", "compact,delete"],
    }


# --- what internal topics keep ----------------------------------------------------------------------------------------------------

COMPACT = {"cleanup.policy": "compact"}
WINDOWS = {"cleanup.policy": "compact,delete", "retention.ms": "1000"}
REPARTITION = {"cleanup.policy": "delete", "retention.ms": "-1"}
VERSIONS = {"cleanup.policy": "compact", "min.compaction.lag.ms": "1000"}
USUAL = {"retention.ms": "604800000", "retention.bytes": "-1", "min.compaction.lag.ms": "0"}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (COMPACT, {**USUAL, **COMPACT}),
        (WINDOWS, {**USUAL, **WINDOWS}),
        (WINDOWS, {**USUAL, "cleanup.policy": "delete, compact", "retention.ms": "-1"}),
        (WINDOWS, {**USUAL, "cleanup.policy": "compact", "retention.ms": "1"}),
        (WINDOWS, {**USUAL, "cleanup.policy": "delete", "retention.ms": "1001"}),
        (REPARTITION, {**USUAL, **REPARTITION}),
        (VERSIONS, {**USUAL, **VERSIONS}),
        (VERSIONS, {**USUAL, **VERSIONS, "min.compaction.lag.ms": "2000"}),
        ({"cleanup.policy": "compact,delete", "retention.bytes": "5"}, {**USUAL, "cleanup.policy": "delete", "retention.bytes": "6"}),
        (WINDOWS, {**USUAL, **WINDOWS, "retention.bytes": "5"}),
        ({**WINDOWS, "retention.ms": "soon"}, {**USUAL, **WINDOWS, "retention.ms": "1"}),
        (COMPACT, {}),
        (REPARTITION, {}),
    ],
)
def test_a_topic_that_keeps_more_than_it_has_to_is_right(wanted: dict[str, str], found: dict[str, str]) -> None:
    """A topic without known configs is right too; the user's own settings count as wanted, and the log refuses wrong ones."""
    assert misfits(NewTopic("t", 1, wanted), found) == []


@pytest.mark.parametrize(
    ("wanted", "found", "told"),
    [
        (COMPACT, {"cleanup.policy": "delete"}, ["t has cleanup.policy=delete and needs compact"]),
        (COMPACT, {"cleanup.policy": "compact,delete"}, ["t has cleanup.policy=compact,delete and needs compact"]),
        (REPARTITION, {"cleanup.policy": "compact"}, ["t has cleanup.policy=compact and needs delete"]),
        (REPARTITION, {"retention.ms": "1000"}, ["t has retention.ms=1000 and needs -1"]),
        (WINDOWS, {"retention.ms": "999"}, ["t has retention.ms=999 and needs 1000 or more"]),
        ({**WINDOWS, "retention.bytes": "-1"}, {"retention.bytes": "999"}, ["t has retention.bytes=999 and needs -1"]),
        (VERSIONS, {"min.compaction.lag.ms": "999"}, ["t has min.compaction.lag.ms=999 and needs 1000 or more"]),
        (VERSIONS, {"cleanup.policy": "delete", "min.compaction.lag.ms": "0"},
         ["t has cleanup.policy=delete and needs compact", "t has min.compaction.lag.ms=0 and needs 1000 or more"]),
    ],
)  # fmt: skip
def test_a_topic_that_would_lose_records_is_refused_with_the_needed_config(wanted: dict[str, str], found: dict[str, str], told: list[str]) -> None:
    """The rules are those of InternalTopicManager.validate in Kafka Streams."""
    assert misfits(NewTopic("t", 1, wanted), {**USUAL, **wanted, **found}) == told


def test_a_changelog_may_be_compacted_as_well() -> None:
    """Kafka Streams has made those of joins both ways; of a repartition topic each record is wanted."""
    found = {**USUAL, **WINDOWS, "cleanup.policy": "compact,delete"}
    assert misfits(NewTopic("app-join-changelog", 1, {**WINDOWS, "cleanup.policy": "delete"}), found) == []
    assert misfits(NewTopic("app-x-repartition", 1, REPARTITION), {**USUAL, **REPARTITION, "cleanup.policy": "compact,delete"}) == [
        "app-x-repartition has cleanup.policy=compact,delete and needs delete"
    ]


@pytest.mark.parametrize(
    ("topology", "name", "told"),
    [
        (counting(), "app-counts-changelog", "cleanup.policy=delete and needs compact"),
        (counting(repartition=True), "app-by-value-repartition", "retention.ms=604800000 and needs -1"),
    ],
)
async def test_an_internal_topic_that_was_made_by_hand_has_the_settings_of_any_topic(topology: Topology, name: str, told: str) -> None:
    """Made without settings it forgets as Kafka's topics do by default, and the app does not start on it; nor does it on Kafka."""
    log = open_log("memory://")
    await log.start()
    await log.create_topics([NewTopic("in", 1), NewTopic("out", 1), NewTopic(name, 1)])
    with pytest.raises(TopologyError, match=f"{name} has {told}"):
        await prepare_topics(log, topics_of(topology))
    await log.close()


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "compact"])
async def test_an_app_does_not_start_on_a_changelog_that_forgets(policy: str) -> None:
    """A table with a changelog that is not only compacted would lose keys that have not changed for long: the error says so, with the remedy."""
    log = open_log("memory://")
    await log.start()
    await log.create_topics([NewTopic("in", 1), NewTopic("out", 1), NewTopic("app-counts-changelog", 1, {"cleanup.policy": policy})])
    preparing = prepare_topics(log, topics_of(counting()))
    if policy == "compact":
        assert (await preparing)["app-counts-changelog"] == 1
    else:
        with pytest.raises(
            TopologyError, match=rf"app-counts-changelog has cleanup.policy={policy} and needs compact\. Change the configs \(`kafka-configs"
        ):
            await preparing
    await log.close()


@in_app(counting(), topics={"in": 1, "out": 1}, start=False, application_id="app")
async def test_an_app_says_so_and_writes_nothing(harness: AppHarness) -> None:
    """The start of the app fails by it, before any record is read."""
    await harness.log.create_topics([NewTopic("app-counts-changelog", 1, {"cleanup.policy": "delete"})])
    with pytest.raises(TopologyError, match=r"app-counts-changelog has cleanup\.policy=delete and needs compact"):
        await harness.start()
    assert harness.app.state is InstanceState.ERROR
    assert await harness.read("out") == []
