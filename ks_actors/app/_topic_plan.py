"""The topics that an app needs, compared with the existing topics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from ks_actors._errors import MissingSourceTopics, TopologyError
from ks_actors.log import NewTopic
from ks_actors.runtime.shared import misfits, plan_topics
from ks_actors.task import Planning, TaskParts
from ks_actors.topology import SinkNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.config import StreamsConfig
    from ks_actors.log import Log, TopicDescription
    from ks_actors.task import AppTopics
    from ks_actors.topology import Topology


_DEFAULT_PLANNING = Planning()
Use: TypeAlias = Literal[
    "source", "sink", "source and sink", "global", "repartition", "changelog", "dead letters"
]

# The sizes that the TopologyError about internal topics names.
_WRONG_SIZE: Final = re.compile(r" (\S+) has [\d,]+ partitions? and needs ")


class TopicPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One topic of an app."""

    topic: str
    """The name in the log."""
    use: Use
    """The app's use of the topic."""
    internal: bool = False
    """Whether it is a changelog or a repartition topic."""
    created: bool = False
    """Whether the start of the app creates it, if it is missing."""
    partitions: int | None = None
    """The number of partitions that the topic has, or that it needs; None if unknown."""
    state: Literal["exists", "missing", "does not fit"]
    """Whether the topic exists, and fits the app."""
    configs: Mapping[str, str] = {}
    """The configs that an internal topic is created with."""
    problem: str | None = None
    """The reason why it does not fit."""


async def plan_app_topics(
    topology: Topology,
    config: StreamsConfig,
    log: Log,
    topics: Mapping[str, int] = MappingProxyType({}),
    planning: Planning = _DEFAULT_PLANNING,
) -> tuple[TopicPlan, ...]:
    """Return all topics of an app, sorted by use and name; change nothing.

    `topics` are those of the App, which its start creates. Without its source topics the sizes of
    internal topics are unknown. Raises LogError, NotAuthorized, and TopologyError for topics that
    do not fit each other, such as joined topics with different numbers of partitions.
    """
    app_topics = TaskParts.of(topology, config, planning=planning).topics
    existing = await log.describe_topics()
    wanted: list[NewTopic] = []
    wrong = ""
    try:
        _, wanted, found = await plan_topics(log, app_topics, also=topics)
        # Include new topics, which the listing may lack.
        existing = {**{name: one for name, one in found.items() if name not in topics}, **existing}
    except MissingSourceTopics:
        pass  # missing topics are in the plan, too
    except TopologyError as error:
        wrong = str(error)
        if not _WRONG_SIZE.search(wrong):
            raise  # the plan of an internal topic cannot show this error
    known = {topic.name for topic in wanted}
    internal = [
        *wanted,
        *(NewTopic(name, 0) for name in _internal(app_topics) if name not in known),
    ]
    plans = [
        *_outside(app_topics, existing, topics),
        *(_inside(each, app_topics, existing, wrong) for each in internal),
    ]
    return tuple(sorted(plans, key=lambda each: (each.internal, each.use, each.topic)))


def _outside(
    app_topics: AppTopics, existing: Mapping[str, TopicDescription], topics: Mapping[str, int]
) -> Iterator[TopicPlan]:
    topology, internal = app_topics.topology, app_topics.topology.internal_topics
    sinks = {
        node.topic
        for node in topology.nodes.values()
        if isinstance(node, SinkNode) and isinstance(node.topic, str) and node.topic not in internal
    }
    uses: dict[str, Use] = dict.fromkeys(topology.global_topics, "global")
    sources = {
        topic
        for each in topology.subtopologies()
        for topic in each.source_topics
        if topic not in internal
    } | set(app_topics.matching({*existing, *topics}))
    uses |= {topic: "source and sink" if topic in sinks else "source" for topic in sources}
    uses |= dict.fromkeys(sinks - uses.keys(), "sink")
    letters = app_topics.config.errors_dead_letter_queue_topic_name
    if letters is not None:
        uses[letters] = "dead letters"
    for topic, use in uses.items():
        there = existing.get(topic)
        yield TopicPlan(
            topic=topic,
            use=use,
            created=topic in topics,
            partitions=topics.get(topic) if there is None else there.partitions,
            state="missing" if there is None else "exists",
        )


def _internal(app_topics: AppTopics) -> Iterator[str]:
    topology = app_topics.topology
    yield from map(app_topics.topic, topology.internal_topics)
    for each in topology.subtopologies():
        for spec in each.stores.values():
            if spec.logging and spec.source_topic is None:
                yield app_topics.changelog(spec.name)


def _inside(
    wanted: NewTopic, app_topics: AppTopics, existing: Mapping[str, TopicDescription], wrong: str
) -> TopicPlan:
    there = existing.get(wanted.name)
    problems = [] if there is None else misfits(wanted, there.configs)
    if wanted.name in _WRONG_SIZE.findall(wrong):
        problems.append(wrong)
    repartitions = set(map(app_topics.topic, app_topics.topology.internal_topics))
    state: Literal["exists", "missing", "does not fit"] = (
        "does not fit" if problems else "missing" if there is None else "exists"
    )
    count = wanted.partitions or (None if there is None else there.partitions)
    return TopicPlan(
        topic=wanted.name,
        use="repartition" if wanted.name in repartitions else "changelog",
        internal=True,
        created=True,
        partitions=count,
        state=state,
        configs=wanted.configs,
        problem="; ".join(problems) or None,
    )
