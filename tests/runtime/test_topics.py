"""The topics that an app makes for itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from ks_actors import Consumed, Materialized, StreamsBuilder, StreamsConfig, TopologyError, UnlimitedWindows, serdes
from ks_actors.log import NewTopic, open_log
from ks_actors.runtime._setup import Setup
from ks_actors.runtime._topics import prepare_topics
from tests.runtime.helpers import counting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ks_actors import Topology
    from ks_actors.log import Log


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


def setup_of(topology: Topology) -> Setup:
    return Setup(
        topology, StreamsConfig(application_id="app"),
        wall_time=lambda: 0, work_time=time.perf_counter, partitions=lambda _: None, nodes=lambda _: (),
    )  # fmt: skip


@pytest.mark.parametrize("partitions", [3, 2])
async def test_instances_may_start_at_the_same_time(partitions: int) -> None:
    """Topics that another instance makes at the same moment are taken, if they fit."""
    log = open_log("memory://")
    await log.start()
    await log.create_topics([NewTopic("in", 3), NewTopic("out", 1)])
    preparing = prepare_topics(_Slow(log, partitions), setup_of(counting()))  # type: ignore[arg-type]  # it uses no more of it
    if partitions == 3:
        assert (await preparing)["app-counts-changelog"] == 3
    else:
        with pytest.raises(TopologyError, match="app-counts-changelog has 2 partitions and needs 3"):
            await preparing
    await log.close()


async def test_a_window_without_an_end_is_kept_as_long_as_a_log_can_be_told() -> None:
    """Its retention and what changelogs keep besides are more than fits: a Kafka would not make the topic."""
    builder = StreamsBuilder()
    words = builder.stream("in", Consumed(serdes.STRING, serdes.STRING)).group_by_key()
    words.windowed_by(UnlimitedWindows.of()).count(Materialized("counts", serdes.STRING, serdes.LONG))
    log = open_log("memory://")
    await log.start()
    await log.create_topics([NewTopic("in", 1)])
    await prepare_topics(log, setup_of(builder.build()))
    changelog = (await log.describe_topics())["app-counts-changelog"]
    await log.close()
    assert changelog.configs["retention.ms"] == str(2**63 - 1)
