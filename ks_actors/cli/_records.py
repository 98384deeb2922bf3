"""`ks-actors send` and `ks-actors tail`: write records, and look at them."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ks_actors._counted import counted
from ks_actors.cli._application import of_log
from ks_actors.cli._formats import FORMATS, from_bytes, to_bytes
from ks_actors.cli._output import TakesOne, json_text, moment, printable
from ks_actors.log import IsolationLevel, TopicPartition
from ks_actors.topics import Publisher, partitions_of, read_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ks_actors.cli._application import Application
    from ks_actors.log import Fetched, Log
    from ks_actors.records import Headers

_CLIENT = "ks-actors-cli"
_AT_ONCE = 10_000
"""The most records that are sent at the same time."""
_LATEST = (1 << 63) - 1
_OFFSET = re.compile(r"-?\d+")


def _formats(command: Callable[..., Any]) -> Callable[..., Any]:
    for part in ("value", "key"):
        command = click.option(
            f"--{part}-format",
            type=click.Choice(FORMATS),
            default="text",
            show_default=True,
            help=f"The form of the {part}s.",
        )(command)
    return command


class _Record(NamedTuple):
    key: bytes | None
    value: bytes | None


@click.command(cls=TakesOne)
@click.argument("topic")
@click.option("--key", "-k", help="The key. Default: none.")
@click.option("--value", "-v", help="The value. Without it, records are lines of stdin.")
@click.option("--delete", is_flag=True, help="Send the key without a value, which deletes it.")
@click.option("--header", "-H", "headers", metavar="NAME=TEXT", multiple=True, help="Repeatable.")
@click.option("--partition", "-p", "number", type=click.IntRange(0), help="Default: by the key.")
@click.option("--timestamp", type=click.IntRange(0, _LATEST), metavar="MS", help="Default: now.")
@click.option(
    "--separator",
    default="\t",
    help="In lines of stdin: between key and value. Default: a tab; without one, no key.",
)
@_formats
@of_log
def send(
    application: Application,
    *,
    topic: str,
    key: str | None,
    value: str | None,
    delete: bool,
    headers: tuple[str, ...],
    number: int | None,
    timestamp: int | None,
    separator: str,
    key_format: str,
    value_format: str,
    as_json: bool,
) -> None:
    """Write one record to a topic, or one for each line of stdin.

    Records with a key go to the partition that Kafka's clients choose, records without a key to all
    partitions in turn. The command ends when all in-sync replicas have the records.
    """
    if delete and (key is None or value is not None):
        raise click.UsageError("--delete needs --key, and no --value")
    if value is None and not delete and key is not None:
        raise click.UsageError(
            "--key needs --value or --delete; lines of stdin have their own keys"
        )
    try:
        records = (
            [_Record(_encoded(key, key_format), _encoded(value, value_format))]
            if value is not None or delete
            # Read all of stdin before the first write: a bad line must leave nothing written.
            else list(_lines(separator, key_format, value_format))
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    pairs: Headers = tuple(_header(each) for each in headers)

    async def work(log: Log) -> dict[TopicPartition, int]:
        at = time.time_ns() // 1_000_000 if timestamp is None else timestamp
        ends: dict[TopicPartition, int] = {}
        async with Publisher(application.config, log=log) as publisher:
            for start in range(0, len(records), _AT_ONCE):
                calls = (
                    publisher.send(
                        topic,
                        *record,
                        key_serde=bytes,
                        value_serde=bytes,
                        partition=number,
                        timestamp_ms=at,
                        headers=pairs,
                    )
                    for record in records[start : start + _AT_ONCE]
                )
                for sent in await asyncio.gather(*calls):
                    ends[TopicPartition(topic, sent.partition)] = sent.offset + 1
        return ends

    ends = application.ask(work, if_missing="create")
    rows = {str(place): end for place, end in sorted(ends.items())}
    if as_json:
        click.echo(json.dumps({"records": len(records), "next_offsets": rows}))
    else:
        where = ", ".join(f"{place} up to {end - 1:,}" for place, end in rows.items())
        click.echo(f"{counted(len(records), 'record')} written{': ' if where else ''}{where}")


def _encoded(text: str | None, form: str) -> bytes | None:
    return None if text is None else to_bytes(text, form)


def _lines(separator: str, key_format: str, value_format: str) -> Iterator[_Record]:
    for number, line in enumerate(sys.stdin, 1):
        first, found, rest = line.rstrip("\r\n").partition(separator)
        key, value = (first, rest) if found else (None, first)
        try:
            yield _Record(_encoded(key, key_format), to_bytes(value, value_format))
        except ValueError as error:
            raise ValueError(f"line {number} of stdin: {error}") from error


def _header(pair: str) -> tuple[str, bytes | None]:
    name, equals, text = pair.partition("=")
    if not (name and equals):
        raise click.UsageError(f"--header {pair!r} is not name=text")
    try:
        name.encode()
        return name, text.encode()
    except UnicodeEncodeError:
        raise click.UsageError(f"--header {pair!r} has bytes that are not UTF-8") from None


@click.command()
@click.argument("topic")
@click.option(
    "--from",
    "start",
    default="end",
    metavar="PLACE",
    show_default=True,
    help="begin, end, an offset, -N (the last N of each partition), or a time, 2026-11-26T00:00.",
)
@click.option("--partition", "-p", "numbers", type=click.IntRange(0), multiple=True)
@click.option("--max", "most", type=click.IntRange(1), metavar="N", help="Stop after N records.")
@click.option("--until-end", is_flag=True, help="Stop at the records that there are now.")
@click.option("--uncommitted", is_flag=True, help="Show records of open transactions, too.")
@_formats
@of_log
def tail(
    application: Application,
    *,
    topic: str,
    start: str,
    numbers: tuple[int, ...],
    most: int | None,
    until_end: bool,
    uncommitted: bool,
    key_format: str,
    value_format: str,
    as_json: bool,
) -> None:
    """Print the records of a topic as they come, until SIGINT.

    Joins no group, and commits nothing. With --json each record is one line. Records of one
    partition are in their order.
    """
    isolation = IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED

    async def work(log: Log) -> None:
        places = await partitions_of(log, topic, numbers)
        begins = await log.begin_offsets(places)
        ends = await log.end_offsets(places, isolation)
        positions = await _positions(log, start, begins, ends)
        fetcher = log.fetcher(client_id=_CLIENT, isolation=isolation)
        batches = read_batches(fetcher, positions, ends=ends if until_end else None)
        shown = 0
        async with aclosing(batches):
            async for fetched in batches:
                for text in _shown(fetched, key_format, value_format, as_json=as_json):
                    click.echo(text)
                    shown += 1
                    if shown == most:
                        return

    try:
        application.ask(work)
    except KeyboardInterrupt:
        return


async def _positions(
    log: Log,
    start: str,
    begins: dict[TopicPartition, int] | Any,
    ends: dict[TopicPartition, int] | Any,
) -> dict[TopicPartition, int]:
    if start == "begin":
        return dict(begins)
    if start == "end":
        return dict(ends)
    if _OFFSET.fullmatch(start):
        at = int(start)
        return {
            # -0 is the end, too, but as a number it has no sign. Offsets before the first offset
            # are raised to it, because a fetch would fail.
            each: min(max(begins[each], end + at if at < 0 or start == "-0" else at), end)
            for each, end in ends.items()
        }
    try:
        since = datetime.fromisoformat(start)
    except ValueError:
        raise click.UsageError(
            f"--from {start!r} is not begin, end, an offset, -N, or a time such as 2026-11-26T00:00"
        ) from None
    if since.tzinfo is None:
        # Read times in the form in which they are printed, so that a time can be copied into the
        # command.
        since = since.replace(tzinfo=UTC)
    found = await log.offsets_for_times(dict.fromkeys(ends, int(since.timestamp() * 1000)))
    return dict(found)


def _shown(fetched: Fetched, key_format: str, value_format: str, *, as_json: bool) -> Iterator[str]:
    topic, number = fetched.partition
    batch = fetched.batch
    offsets = batch.offsets
    for at in range(len(batch)):
        offset = offsets[at]
        key = from_bytes(batch.keys[at], key_format)
        value = from_bytes(batch.values[at], value_format)
        timestamp = batch.timestamps[at]
        headers = batch.headers[at] if batch.headers is not None else ()
        if as_json:
            text = json_text(
                {
                    "topic": topic,
                    "partition": number,
                    "offset": offset,
                    "timestamp": timestamp,
                    "key": key,
                    "value": value,
                    "headers": [[name, from_bytes(each, "text")] for name, each in headers],
                }
            )
        else:
            at_time = moment(timestamp)
            text = f"{fetched.partition}@{offset} {at_time} {_plain(key)} {_plain(value)}"
            text += "".join(
                f" {printable(name)}={_plain(from_bytes(each, 'text'))}" for name, each in headers
            )
        yield text


def _plain(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return printable(value)
    return json_text(value)
