"""`ks-actors lag` and `ks-actors members`: a group, as its brokers know it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import click

from ks_actors._counted import counted
from ks_actors._errors import LogError
from ks_actors.cli._application import groups_of, of_application
from ks_actors.cli._output import show, tell
from ks_actors.log import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ks_actors.cli._application import Application
    from ks_actors.log import GroupMember, Log
    from ks_actors.topology import Topology

_CLIENT: Final = "ks-actors-lag"
_WAIT_MS: Final = 500
_PATIENCE_S: Final = 10.0


@click.command()
@click.option(
    "--over",
    type=click.IntRange(0),
    metavar="N",
    help="Exit with code 3 if more records than this are left, in all partitions together.",
)
@of_application
def lag(application: Application, *, over: int | None, as_json: bool) -> None:
    """Print how many records each input partition has that are not committed.

    The seconds are the age of the first of them, by its timestamp; - if it could not be read or has
    no timestamp. With --app the partitions are those that the topology reads, else those that the
    group has committed and those of its members. Records of open transactions do not count. Works
    while the app runs or not. Exit code 3: more is left than --over, an input topic is missing,
    there is no such group, or none of its partitions is known.
    """
    rows, problem = application.ask(lambda log: _lags(log, application))
    total = sum(row["lag"] for row in rows)
    show(
        rows,
        ("topic", "partition", "committed", "end", "lag", "seconds", "member"),
        as_json=as_json,
    )
    if not as_json:
        click.echo(f"{counted(total, 'record')} in {counted(len(rows), 'partition')}")
    if problem is not None:
        tell(problem)
        raise SystemExit(3)
    if over is not None and total > over:
        raise SystemExit(3)


async def _lags(log: Log, application: Application) -> tuple[list[dict[str, Any]], str | None]:
    """Return a row for each partition, and the reason if partitions are missing."""
    groups, group_id = groups_of(log), application.config.application_id
    offsets = await groups.group_offsets(group_id)
    members = await groups.group_members(group_id)
    # An app that has never committed, because it fails at its first record, say, has read nothing.
    owners = _owners(members)
    partitions, problem = offsets.keys() | owners.keys(), None
    if application.topology is None and not partitions:
        # A mistyped id must not look like an application that has read everything.
        problem = (
            f"group {group_id} has no committed offsets, and its members have no partitions "
            "yet: try again, or give --app"
            if members
            else f"group {group_id} has neither committed offsets nor members: check the id of the "
            "application, and the log"
        )
    if application.topology is not None:
        sizes = {
            name: one.partitions for name, one in (await log.describe_topics(configs=False)).items()
        }
        read = inputs(application.topology, group_id, sizes)
        partitions = {
            TopicPartition(topic, number) for topic in read for number in range(sizes[topic])
        }
        internal = application.topology.internal_topics  # the first start creates these
        lacking = sorted(
            _named(application.topology, group_id)
            - {f"{group_id}-{topic}" for topic in internal}
            - set(read)
        )
        if lacking:
            problem = f"{group_id} reads topics that do not exist: {', '.join(lacking)}"
    ends = await log.end_offsets(partitions, IsolationLevel.READ_COMMITTED)
    begins = await log.begin_offsets(partitions)
    committed = {each: offsets[each].offset if each in offsets else None for each in partitions}
    lags = {
        each: max(0, ends[each] - (begins[each] if at is None else at))
        for each, at in committed.items()
    }
    # Records before the first offset are deleted, so start at the first remaining record.
    behind = {each: max(begins[each], committed[each] or 0) for each, left in lags.items() if left}
    waiting = await _ages(log, {each: at for each, at in behind.items() if at < ends[each]})
    rows = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "committed": committed[each],
            "end": ends[each],
            "lag": lags[each],
            "seconds": waiting.get(each) if lags[each] else 0,
            "member": owners.get(each),
        }
        for each in sorted(partitions)
    ]
    return rows, problem


async def _ages(
    log: Log, positions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | None]:
    """Return the age in seconds of the first record at each position, by its timestamp.

    Reads one record of each partition, for at most ten seconds in all. Leaves out partitions that
    have not answered by then or whose records cannot be read; a line on stderr says why. A record
    without a timestamp has the age None.
    """
    found: dict[TopicPartition, int | None] = {}
    if not positions:
        return found
    fetcher = log.fetcher(client_id=_CLIENT, isolation=IsolationLevel.READ_COMMITTED)
    fetcher.assign(dict(positions))
    try:
        async with asyncio.timeout(_PATIENCE_S):
            while len(found) < len(positions):
                for fetched in await fetcher.fetch(max_wait_ms=_WAIT_MS, max_records=1):
                    if len(fetched.batch) and fetched.partition not in found:
                        at = fetched.batch.timestamps[0]
                        age = max(0, round(time.time() - at / 1000))
                        # A record without a timestamp has -1.
                        found[fetched.partition] = age if at >= 0 else None
                        fetcher.pause((fetched.partition,))
    except TimeoutError:
        _tell_unknown(f"no answer within {_PATIENCE_S:g} s", positions.keys() - found.keys())
    except LogError as error:
        _tell_unknown(str(error), positions.keys() - found.keys())
    finally:
        await fetcher.close()
    return found


def _tell_unknown(reason: str, partitions: Iterable[TopicPartition]) -> None:
    # This is no failure of the command: the lag in records is known nevertheless.
    names = ", ".join(map(str, sorted(partitions)))
    tell(f"the age of records is unknown for {names}: {reason}")


def inputs(topology: Topology, application_id: str, existing: Iterable[str]) -> list[str]:
    """Return the existing topics that the tasks of a topology read, by their names in the log."""
    found = _named(topology, application_id)
    names = list(existing)
    for subtopology in topology.subtopologies():
        for pattern in subtopology.source_patterns:
            found |= {name for name in names if pattern.fullmatch(name)}
    return sorted(found & set(names))


def _named(topology: Topology, application_id: str) -> set[str]:
    """Return the topics that the tasks of a topology read, except topics matched by patterns."""
    return {
        f"{application_id}-{topic}" if topic in topology.internal_topics else topic
        for subtopology in topology.subtopologies()
        for topic in subtopology.source_topics
    }


def _owners(members: Sequence[GroupMember]) -> dict[TopicPartition, str]:
    return {
        partition: member.client_id for member in members for partition in member.partitions or ()
    }


@click.command()
@of_application
def members(application: Application, *, as_json: bool) -> None:
    """Print the members of an application's group: client ids, hosts and partitions.

    During a rebalance the partitions are unknown. Exit code 3: the group has no members.
    """

    async def ask(log: Log) -> Sequence[GroupMember]:
        return await groups_of(log).group_members(application.config.application_id)

    found = application.ask(ask)
    rows = [
        {
            "client_id": member.client_id,
            "host": member.host.removeprefix("/") or None,
            "partitions": None
            if member.partitions is None
            else sorted(map(str, member.partitions)),
            "member_id": member.member_id,
        }
        for member in sorted(found, key=lambda member: member.client_id)
    ]
    show(rows, ("client_id", "host", "partitions"), as_json=as_json)
    if not rows:
        tell(f"{application.config.application_id} has no members")
        raise SystemExit(3)
