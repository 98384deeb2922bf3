"""`ks-actors topics`: the topics that an application needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ks_actors.app import TopicPlan, plan_app_topics
from ks_actors.cli._application import of_target
from ks_actors.cli._output import OtherNames, reported, show
from ks_actors.log import NewTopic
from ks_actors.topology import SinkNode, SourceNode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ks_actors.cli._application import Application
    from ks_actors.log import Log

COLUMNS = ("topic", "use", "partitions", "state", "configs")


@click.group(cls=OtherNames)
def topics() -> None:
    """Show or create the topics that an application needs."""


@topics.command()
@of_target
def plan(application: Application, *, as_json: bool) -> None:
    """Show all topics that an app reads and writes, and its internal topics.

    Nothing is changed. Exit codes: 0 all of them exist, 3 some are missing, or exist and do not
    fit.
    """
    found = application.ask(lambda log: _planned(log, application), if_missing="empty")
    show(rows_of(found), COLUMNS, as_json=as_json)
    if any(each.state != "exists" for each in found):
        raise SystemExit(3)


async def _planned(log: Log, application: Application) -> Sequence[TopicPlan]:
    assert application.topology is not None
    return await plan_app_topics(
        application.topology,
        application.config,
        log,
        application.topics,
        application.planning,
    )


def rows_of(found: Sequence[TopicPlan]) -> list[dict[str, Any]]:
    """Return rows to show."""
    return [
        {
            "topic": each.topic,
            "use": each.use,
            "partitions": each.partitions,
            "state": each.state if each.problem is None else f"{each.state}: {each.problem}",
            "configs": [f"{name}={value}" for name, value in sorted(each.configs.items())],
        }
        for each in found
    ]


@topics.command()
@click.option(
    "--topic",
    "given",
    metavar="NAME=PARTITIONS",
    multiple=True,
    help="Create this source or sink topic, too. Repeatable.",
)
@of_target
def create(application: Application, *, given: tuple[str, ...], as_json: bool) -> None:
    """Create the missing changelogs and repartition topics, as a start of the app would.

    Their partitions come from the source topics. Source and sink topics are created only where
    --topic gives their partitions; one that exists keeps its own. Exit codes: 0 all topics exist
    now, 1 a topic could not be created, 3 a source or sink topic is missing, or has other
    partitions than --topic gives.
    """
    wanted = [_new(each) for each in given]
    names = [topic.name for topic in wanted]
    if len(set(names)) < len(names):
        raise click.UsageError("--topic names a topic twice: give each once")
    made: list[str] = []
    assert application.topology is not None
    nodes = application.topology.nodes.values()
    patterns = [node.pattern for node in nodes if isinstance(node, SourceNode) and node.pattern]
    chosen = any(isinstance(node, SinkNode) and callable(node.topic) for node in nodes)

    def may_be(name: str) -> bool:
        # The topology does not know the names of topics that a pattern matches or a function
        # chooses.
        return chosen or any(pattern.fullmatch(name) for pattern in patterns)

    async def work(log: Log) -> Sequence[TopicPlan]:
        used = {each.topic for each in await _planned(log, application)}
        strange = sorted(name for name in names if name not in used and not may_be(name))
        if strange:
            raise click.UsageError(
                f"--topic {strange[0]}: the topology neither reads nor writes it; it uses "
                f"{', '.join(sorted(used))}"
            )
        existing = await log.describe_topics(configs=False)
        own = [topic for topic in wanted if topic.name not in existing]
        await log.create_topics(own)
        made.extend(topic.name for topic in own)
        found = await _planned(log, application)
        missing = [
            NewTopic(each.topic, each.partitions, each.configs)
            for each in found
            if each.state == "missing" and each.created and each.partitions is not None
        ]
        await log.create_topics(missing)
        made.extend(topic.name for topic in missing)
        return await _planned(log, application)

    with reported(application.config.application_id):
        found = application.ask(work, if_missing="create")
    counts = {topic.name: topic.partitions for topic in wanted}
    rows = [
        {**row, "state": _state(row, counts), "created": row["topic"] in made}
        for row in rows_of(found)
    ]
    show(rows, (*COLUMNS, "created"), as_json=as_json)
    if any(row["state"] != "exists" for row in rows):
        raise SystemExit(3)


def _state(row: Mapping[str, Any], counts: Mapping[str, int]) -> str:
    """Return the state of a topic, compared with the given partitions."""
    state, count = str(row["state"]), counts.get(row["topic"])
    if state == "exists" and count is not None and count != row["partitions"]:
        return f"does not fit: it has {row['partitions']} partitions, and --topic gives {count}"
    return state


def _new(pair: str) -> NewTopic:
    name, equals, count = pair.partition("=")
    if not (name and equals and count.isdecimal() and int(count)):
        raise click.UsageError(f"--topic {pair!r} is not name=partitions, such as orders=6")
    return NewTopic(name, int(count))
