"""`ks-actors backfill`: run a topology over past records."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import click
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ks_actors._counted import counted
from ks_actors._errors import KsActorsError
from ks_actors.batch import SparkSettings
from ks_actors.batch.backfill import CHOICES
from ks_actors.cli._application import connection_options
from ks_actors.cli._output import progress_console, reported
from ks_actors.cli._target import app_of, settings
from ks_actors.lifecycle import in_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ks_actors.app import App
    from ks_actors.batch import Backfill, BackfillProgress, Choice

Until: TypeAlias = int | dict[str, dict[int, int]] | None


_OFFSET = re.compile(r"(.+)-(\d+)=(\d+)")


def _until(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> Until:
    """Parse one time or the offsets of partitions.

    A time is ms since the epoch, or a date and time, in UTC unless it has a zone.
    """
    offsets: dict[str, dict[int, int]] = {}
    for found in filter(None, map(_OFFSET.fullmatch, values)):
        offsets.setdefault(found[1], {})[int(found[2])] = int(found[3])
    # Fewer items than given mean that a partition is named twice: a mistake.
    if sum(map(len, offsets.values())) == len(values):
        return offsets or None
    try:
        (value,) = values
        if value.isdecimal():
            return int(value)
        time = datetime.fromisoformat(value)
    except ValueError:
        what = (
            "is not a time such as 2013-12-01T00:00, ms since the epoch, or offsets such as "
            "orders-0=100 with each partition once"
        )
        raise click.BadParameter(what, context, parameter) from None
    return int((time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _spark(master: str | None, pairs: tuple[str, ...]) -> SparkSettings | None:
    """Return the Spark settings, or None without a master. Raises click.UsageError."""
    if master is None:
        if pairs:
            raise click.UsageError("--spark-conf needs --spark")
        return None
    try:
        return SparkSettings(
            master=master, conf=cast("dict[str, str]", settings(pairs, "--spark-conf"))
        )
    except KsActorsError as error:
        raise click.UsageError(str(error)) from error


@click.command()
@click.argument("target", metavar="MODULE:NAME")
@click.option(
    "--until",
    metavar="TIME",
    multiple=True,
    callback=_until,
    help="Stop before the first record at or after a time: 2013-12-01T00:00 (UTC), or ms; or at an "
    "offset: orders-0=100. Repeat it for more partitions.",
)
@click.option(
    "--allow",
    type=click.Choice(CHOICES),
    multiple=True,
    help="Accept this difference from a stream. Repeatable.",
)
@click.option(
    "--spark",
    metavar="MASTER",
    help="Run on Spark: local[*], spark://host:port, yarn, k8s://… or sc://host:port.",
)
@click.option(
    "--spark-conf",
    "spark_conf",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting of Spark itself. Repeatable.",
)
@click.option(
    "--parquet",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the output to this directory, as Parquet, instead of topics.",
)
@click.option(
    "--publish",
    "job",
    is_flag=False,
    flag_value="backfill",
    metavar="[JOB]",
    help="Write the output to its topics, once per job of this name.",
)
@connection_options
@click.option("--quiet", "-q", is_flag=True, help="Show no progress.")
def backfill(
    target: str,
    until: Until,
    allow: tuple[Choice, ...],
    spark: str | None,
    spark_conf: tuple[str, ...],
    parquet: Path | None,
    job: str | None,
    conf: Sequence[str],
    file: Path | None,
    quiet: bool,
) -> None:
    """Run a topology over all records of its topics, in this process or on Spark.

    The state goes into a snapshot at the setting snapshot_uri, with the positions where a stream
    resumes. Output goes to Parquet files with --parquet, and to the topology's topics with
    --publish. Records that a run of the same job has already published are not written again.
    Otherwise the log is only read. MODULE:NAME and settings are those of `ks-actors run`.
    """
    on = _spark(spark, spark_conf)
    app = app_of(target, conf, file)
    console = progress_console(quiet=quiet)
    with reported(app.config.application_id):
        asyncio.run(_run(app, until, allow, (parquet, job), console, on))


async def _run(
    app: App,
    until: Until,
    allow: Sequence[Choice],
    outputs: tuple[Path | None, str | None],
    console: Console,
    spark: SparkSettings | None,
) -> None:
    parquet, job = outputs
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[records]:,} records{task.fields[spark]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("backfill", total=None, records=0, spark="")

        def show(progress: BackfillProgress) -> None:
            known = (
                f", {progress.spark_done} of {progress.spark_known} Spark tasks"
                if progress.spark_known
                else ""
            )
            bars.update(
                bar,
                completed=progress.tasks_done,
                total=progress.tasks,
                records=progress.records,
                spark=known,
            )

        done = await app.backfill(
            until=until,
            allow=allow,
            engine="local" if spark is None else "spark",
            spark=spark,
            progress=show,
        )
    with done:
        counts = {} if parquet is None else await in_thread(done.to_parquet, parquet)
        published = {} if job is None else await app.publish_backfill(done, job=job)
    for line in _summary(done, counts, published):
        click.echo(line)


def _summary(done: Backfill, counts: dict[str, int], published: dict[str, int]) -> list[str]:
    dropped = sum(task.dropped for task in done.tasks)
    rate = done.records / done.seconds if done.seconds else 0
    lines = [
        (
            f"{counted(done.records, 'record')} in {done.seconds:.1f} s ({rate:,.0f}/s) by "
            f"{counted(len(done.tasks), 'task')}, {dropped:,} skipped"
        )
    ]
    if done.snapshot is not None:
        rows = sum(
            store.rows for task in done.snapshot.tasks.values() for store in task.stores.values()
        )
        lines.append(f"snapshot {done.snapshot.name}: {counted(rows, 'row')}")
    lines += [f"{topic}: {counted(count, 'record')}" for topic, count in sorted(counts.items())]
    return lines + [
        f"{topic}: {counted(count, 'record')} published"
        for topic, count in sorted(published.items())
    ]
