"""`ks-actors dlq`: dead letters, and their way back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.progress import Progress

from ks_actors._errors import ProduceFailed, RedriveRefused
from ks_actors.cli._application import of_application, of_log
from ks_actors.cli._output import (
    moment,
    printable,
    progress_console,
    readable,
    show,
    show_json,
    tell,
)
from ks_actors.letters import read_letter, read_letters, redrive
from ks_actors.log import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ks_actors.cli._application import Application
    from ks_actors.letters import Letter
    from ks_actors.log import Log

COLUMNS = ("letter", "time", "source", "source_offset", "exception", "message", "redriven")


@click.group()
def dlq() -> None:
    """Look at dead letters, and write their records back."""


def _topic(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--topic", help="The dead letter topic. Default: errors_dead_letter_queue_topic_name."
    )(command)


def _topic_of(application: Application, topic: str | None) -> str:
    found = topic or application.config.errors_dead_letter_queue_topic_name
    if found is None:
        raise click.UsageError(
            "the dead letter topic is unknown: give --topic, or set "
            "errors_dead_letter_queue_topic_name"
        )
    return found


@dlq.command("list")
@_topic
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@of_log
def list_letters(application: Application, *, topic: str | None, limit: int, as_json: bool) -> None:
    """Print the last dead letters, the newest first: where they came from, and the error."""
    name = _topic_of(application, topic)
    found = application.ask(lambda log: read_letters(log, name, limit=limit))
    show([_row(each) for each in found], COLUMNS, as_json=as_json)


@dlq.command("show")
@click.argument("letter", metavar="PARTITION@OFFSET")
@_topic
@of_log
def show_letter(application: Application, *, letter: str, topic: str | None, as_json: bool) -> None:
    """Print one dead letter with its key, value, headers and stack."""
    place, offset = _place(_topic_of(application, topic), letter)
    found = application.ask(lambda log: read_letter(log, place, offset))
    if found is None:
        raise click.ClickException(f"there is no dead letter at offset {offset} of {place}")
    row = _row(found) | {
        "key": readable(found.key),
        "value": readable(found.value),
        "headers": [[name, readable(value)] for name, value in found.headers],
        "stacktrace": found.stacktrace,
    }
    if as_json:
        show_json(row)
        return
    for name, value in row.items():
        if value is not None:
            text = printable(str(value), keep="\t\n")
            click.echo(f"{name}:" + (f"\n{text}" if "\n" in text else f" {text}"))


@dlq.command("redrive")
@click.argument("letters", metavar="[PARTITION@OFFSET]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All that were not written back before.")
@click.option("--limit", type=click.IntRange(1), default=1_000, show_default=True, help="Of --all.")
@_topic
@of_application
def redrive_letters(
    application: Application,
    *,
    letters: tuple[str, ...],
    every: bool,
    limit: int,
    topic: str | None,
    as_json: bool,
) -> None:
    """Write the records of dead letters back to the partitions that they came from, each once.

    Each is one transaction, with a marker in the dead letter topic. A letter that cannot be written
    back, because its source is gone, say, is named; the others continue, and the exit code is 1. An
    error of the log ends the command: letters before it stay written back, and are not written
    again.
    """
    if every == bool(letters):
        raise click.UsageError("give dead letters as PARTITION@OFFSET, or --all")
    name = _topic_of(application, topic)
    wanted = [_place(name, each) for each in letters]
    done: list[Letter] = []
    left: list[str] = []

    async def work(log: Log) -> None:
        places: Sequence[tuple[TopicPartition, int]] = wanted
        sources: dict[tuple[TopicPartition, int], TopicPartition] = {}
        if every:
            found = await read_letters(log, name, limit=limit)
            if len(found) == limit:
                text = f"only the newest {limit:,} dead letters are looked at: --limit"
                tell(text)
            # Sort by offset, so that the records of one partition come back in the order in which
            # they failed.
            sources = {
                (each.place, each.offset): each.source
                for each in found
                if not each.redriven and each.source is not None
            }
            places = sorted(sources)
        with Progress(console=progress_console(), transient=True, disable=as_json) as bars:
            bar = bars.add_task("redrive", total=len(places))
            # A client waits for a missing topic, once for each of its partitions.
            gone: dict[TopicPartition, Exception] = {}
            for place, offset in places:
                source = sources.get((place, offset))
                failed = None if source is None else gone.get(source)
                try:
                    if failed is None:
                        its = application.config.application_id
                        done.append(await redrive(log, place, offset, application_id=its))
                except (RedriveRefused, ProduceFailed) as error:
                    failed = error
                    if isinstance(error, ProduceFailed):
                        gone |= dict.fromkeys(error.errors, error)
                if failed is not None:
                    left.append(f"{place.partition}@{offset}: {failed}")
                bars.advance(bar)

    try:
        application.ask(work)
    finally:
        # Print the rows also after an error: the caller has to know which letters were written
        # back.
        rows = [_row(each) | {"redriven": True} for each in done]
        show(rows, ("letter", "source", "redriven"), as_json=as_json)
    if left:
        listed = "\n  ".join(left)
        text = f"{len(left)} of {len(left) + len(done)} letters were not written back:\n  {listed}"
        raise click.ClickException(text)


def _place(topic: str, text: str) -> tuple[TopicPartition, int]:
    partition, at, offset = text.removeprefix(f"{topic}-").partition("@")
    if not (at and partition.isdecimal() and offset.isdecimal()):
        raise click.UsageError(f"{text!r} is not PARTITION@OFFSET, such as 0@17")
    return TopicPartition(topic, int(partition)), int(offset)


def _row(letter: Letter) -> dict[str, Any]:
    return {
        "letter": f"{letter.partition}@{letter.offset}",
        "time": moment(letter.timestamp),
        "source": None if letter.source is None else str(letter.source),
        "source_offset": None if letter.source_offset < 0 else letter.source_offset,
        "exception": letter.exception,
        "message": letter.message,
        "redriven": letter.redriven,
    }
