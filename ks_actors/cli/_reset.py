"""`ks-actors reset`: set an application back to its beginning."""

from __future__ import annotations

import asyncio
import csv
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ks_actors._errors import KsActorsError, ResetIncomplete
from ks_actors.app import reset as reset_application
from ks_actors.cli._application import no_log
from ks_actors.cli._output import reported
from ks_actors.cli._target import BY_OPTION, app_of, settings, wrong_settings
from ks_actors.config import ShiftBy, StreamsConfig, duration, missing_directory
from ks_actors.log import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors.app import App, ResetPlan
    from ks_actors.config import ResetTo

_COLUMNS: Final = 3


def _duration(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> timedelta | None:
    if value is None:
        return None
    try:
        return duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


def _datetime(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> datetime | None:
    if value is None:
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            "is not a time such as 2026-11-25T00:00:00.000 (UTC) or 2026-11-25T00:00:00.000+01:00",
            context,
            parameter,
        ) from None


def _plan_file(
    context: click.Context, parameter: click.Parameter, file: Path | None
) -> dict[TopicPartition, int] | None:
    """Parse lines `topic,partition,offset`, as `kafka-consumer-groups --export` writes them."""
    if file is None:
        return None
    try:
        return _offsets_of(context, parameter, file)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise click.BadParameter(
            f"{file} cannot be read as text in UTF-8: {error}", context, parameter
        ) from None


def _offsets_of(
    context: click.Context, parameter: click.Parameter, file: Path
) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    with file.open(newline="", encoding="utf-8") as lines:
        for number, row in enumerate(csv.reader(lines, skipinitialspace=True), 1):
            if not row:
                continue
            try:
                if len(row) != _COLUMNS:
                    raise ValueError
                partition, offset = (
                    TopicPartition(row[0].strip().strip('"'), int(row[1])),
                    int(row[2]),
                )
            except ValueError:
                raise click.BadParameter(
                    f"{file}, line {number}: expected topic,partition,offset", context, parameter
                ) from None
            if partition in offsets:
                raise click.BadParameter(
                    f"{file}, line {number}: {partition} is listed twice", context, parameter
                )
            offsets[partition] = offset
    return offsets


def _names(
    context: click.Context, parameter: click.Parameter, values: Sequence[str]
) -> list[str] | None:
    found = [name.strip() for value in values for name in value.split(",") if name.strip()]
    if values and not found:
        raise click.BadParameter("names no topic", context, parameter)
    return found or None


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option(
    "--app",
    "target",
    metavar="MODULE:NAME",
    help="The app or topology; it gives settings, input topics and internal topics.",
)
@click.option("--application-id", metavar="ID", help="The id of the application.")
@click.option(
    "--bootstrap-server",
    "--bootstrap-servers",
    "servers",
    metavar="HOST:PORT",
    help="The Kafka servers of the application.",
)
@click.option(
    "--input-topics",
    metavar="TOPICS",
    multiple=True,
    callback=_names,
    help="The topics whose offsets are set: a,b. Default: see above.",
)
@click.option(
    "--internal-topics",
    metavar="TOPICS",
    multiple=True,
    callback=_names,
    help="Delete only these internal topics: a,b.",
)
@click.option(
    "--to-earliest",
    is_flag=True,
    help="Start with the first record of each partition (the default).",
)
@click.option("--to-latest", is_flag=True, help="Start with the next new record.")
@click.option("--to-offset", type=int, metavar="N", help="Start at this offset of each partition.")
@click.option(
    "--to-datetime",
    metavar="TIME",
    callback=_datetime,
    help="Start at the first record at or after this time: 2026-11-25T00:00:00.000, UTC.",
)
@click.option(
    "--by-duration",
    metavar="PnDTnHnMnS",
    callback=_duration,
    help="Start at the first record of the last PT2H.",
)
@click.option(
    "--shift-by",
    type=int,
    metavar="N",
    help="Start this many offsets after the committed ones; before them: -100.",
)
@click.option(
    "--from-file",
    type=_FILE,
    callback=_plan_file,
    help="Start at the offsets of a file with lines of topic,partition,offset.",
)
@click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="The state directory: ID below it is deleted.",
)
@click.option(
    "--conf",
    "-c",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting, such as security.protocol=SSL. Repeatable.",
)
@click.option(
    "--config",
    "--command-config",
    "file",
    type=_FILE,
    help="Settings from a .toml or .properties file.",
)
@click.option("--execute", is_flag=True, help="Carry out the plan. Without it nothing is changed.")
@click.option("--dry-run", is_flag=True, help="Change nothing (the default).")
@click.option(
    "--force",
    is_flag=True,
    help="Remove members from the group, such as crashed ones whose session has not expired.",
)
@click.option(
    "--timeout-ms",
    type=click.IntRange(1),
    default=120_000,
    show_default=True,
    help="The time limit for the whole reset, in ms.",
)
@click.pass_context
def reset(context: click.Context, /, **_: object) -> None:
    """Set an application back, so that its next start counts from the beginning.

    Shows the steps; --execute carries them out. It deletes the local state, then the internal
    topics (changelogs and repartition topics, by the application's id). Last, it sets the group's
    offsets of the input topics. Input and output topics and dead letters stay.

    Settings are those of --config, then of the environment, then of the options. Input topics are
    the given ones, else those that --app reads, else those with offsets of the group. Stop all
    instances first. To delete the state on other machines, run the same command there.

    Exit codes: 0 done, or shown; 1 refused or failed, nothing has changed; 2 wrong command line; 3
    ended in the middle: run it again before you start the application.
    """
    options = context.params
    if options["execute"] and options["dry_run"]:
        raise click.UsageError("--execute and --dry-run exclude each other: give one of them")
    to = _target(context)
    app, config = _config(options)
    if app is None or app._given_log is None:
        with reported(config.application_id):
            missing = missing_directory(config)
        if missing is not None:
            raise no_log(config, missing)
    work = reset_application(
        config,
        topology=None if app is None else app._topology,
        log=None if app is None else app._given_log,
        input_topics=options["input_topics"],
        to=to,
        internal_topics=options["internal_topics"],
        execute=options["execute"],
        force=options["force"],
        timeout_ms=options["timeout_ms"],
    )
    try:
        plan = asyncio.run(work)
    except KeyboardInterrupt:
        # A plan alone changes nothing, so nothing is left half done.
        if not options["execute"]:
            raise
        raise _Incomplete(
            f"{config.application_id}: interrupted; run the reset again before you start the "
            "application"
        ) from None
    except KsActorsError as error:
        kind = _Incomplete if isinstance(error, ResetIncomplete) else click.ClickException
        raise kind(f"{config.application_id}: {type(error).__name__}: {error}") from error
    for line in _table(plan):
        click.echo(line)


class _Incomplete(click.ClickException):
    """The reset has changed some things, but not all."""

    exit_code = 3


def _target(context: click.Context) -> ResetTo:
    """Return the reset target. Raises click.UsageError for more than one."""
    options = context.params
    flags: dict[str, ResetTo] = {}
    if options["to_earliest"]:
        flags["--to-earliest"] = "earliest"
    if options["to_latest"]:
        flags["--to-latest"] = "latest"
    if options["shift_by"] is not None:
        flags["--shift-by"] = ShiftBy(options["shift_by"])
    flags |= {
        f"--{name.replace('_', '-')}": options[name]
        for name in ("to_offset", "to_datetime", "by_duration", "from_file")
        if options[name] is not None
    }
    if len(flags) > 1:
        raise click.UsageError(f"{', '.join(flags)} exclude each other: give one of them")
    return next(iter(flags.values())) if flags else "earliest"


def _config(options: dict[str, Any]) -> tuple[App | None, StreamsConfig]:
    """Return the app, if one is named, and the config. Raises click.UsageError."""
    pairs = [*options["conf"]]
    for option, name in (("application_id", "application_id"), ("servers", "bootstrap_servers")):
        if options[option] is not None:
            pairs.append(f"{name}={options[option]}")
    app = None
    try:
        if options["target"] is None:
            config = StreamsConfig.load(options["file"], **settings(pairs))
        else:
            app = app_of(options["target"], pairs, options["file"])
            config = app.config
        return app, config if options["state_dir"] is None else config.replace(
            state_dir=options["state_dir"]
        )
    except KsActorsError as error:
        raise wrong_settings(error, BY_OPTION) from error


def _table(plan: ResetPlan) -> list[str]:
    rows = [("remove member", member, "", "", "") for member in plan.members]
    if plan.state_directory is not None:
        rows.append(("delete state", str(plan.state_directory), "", "", ""))
    rows += [("delete snapshot", snapshot, "", "", "") for snapshot in plan.snapshots]
    rows += [("delete topic", topic, "", "", "") for topic in plan.internal_topics]
    for each in plan.offsets:
        before = "none" if each.before is None else str(each.before)
        rows.append(("set offset", str(each.partition), before, str(each.after), each.note))
    changes = bool(rows)
    lines = [f"Application {plan.application_id}: " + _headline(plan, changes=changes)]
    if changes:
        rows.insert(0, ("STEP", "OF", "FROM", "TO", ""))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines += [
            "  ".join(
                [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]
            ).rstrip()
            for row in rows
        ]
    return lines + [f"left: {each}" for each in plan.left]


def _headline(plan: ResetPlan, *, changes: bool) -> str:
    if not changes:
        return (
            "there is nothing to reset: no committed offsets, internal topics or local state are "
            "found by this id"
        )
    if plan.executed:
        return "done"
    return "plan (nothing has changed; --execute carries it out)"
