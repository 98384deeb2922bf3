"""`ks-actors export`: tables and topics as Parquet."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ks_actors._counted import counted
from ks_actors.cli._application import connection_options
from ks_actors.cli._bars import Bars, Exporting
from ks_actors.cli._output import progress_console, reported
from ks_actors.cli._target import app_of

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command()
@click.argument("target", metavar="MODULE:NAME")
@click.option(
    "--table",
    "tables",
    metavar="STORE",
    multiple=True,
    help="A table, by the name of its store. Repeatable.",
)
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="A topic. Repeatable.")
@click.option(
    "--to",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="The directory; the files are NAME/PARTITION.parquet below it.",
)
@click.option("--raw", is_flag=True, help="Write keys and values as bytes.")
@connection_options
@click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
def export(
    target: str,
    tables: Sequence[str],
    topics: Sequence[str],
    directory: Path,
    raw: bool,
    conf: Sequence[str],
    file: Path | None,
    quiet: bool,
) -> None:
    """Write the committed part of tables and topics to Parquet files.

    A table is the last value of each key in the changelog of its store. The topology's serdes
    decode keys and values. The log is only read. Stderr shows the progress. MODULE:NAME and
    settings are those of `ks-actors run`.
    """
    if not tables and not topics:
        raise click.UsageError("name something to export: --table STORE, --topic TOPIC")
    app = app_of(target, conf, file)
    with reported(app.config.application_id), Bars(progress_console(quiet=quiet)) as bars:
        export = app.export(
            directory, tables=tables, topics=topics, raw=raw, progress=Exporting(bars)
        )
        counts = asyncio.run(export)
    for name, count in counts.items():
        click.echo(f"{name}: {counted(count, 'row')}")
