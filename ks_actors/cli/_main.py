"""All commands of `ks-actors`, one module each."""

from __future__ import annotations

import click

from ks_actors.cli._backfill import backfill
from ks_actors.cli._check import check
from ks_actors.cli._describe import describe
from ks_actors.cli._diff import topology
from ks_actors.cli._export import export
from ks_actors.cli._groups import lag, members
from ks_actors.cli._letters import dlq
from ks_actors.cli._output import OtherNames
from ks_actors.cli._records import send, tail
from ks_actors.cli._remote import pause, query, resume, tasks
from ks_actors.cli._reset import reset
from ks_actors.cli._run import run
from ks_actors.cli._snapshots import snapshots
from ks_actors.cli._topics import topics
from ks_actors.cli._version import VERSION
from ks_actors.cli._versions import version
from ks_actors.cli.dev import dev
from ks_actors.cli.new import new
from ks_actors.system import heed_signals


@click.group(cls=OtherNames, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(message=VERSION.replace("%", "%%"))
@click.pass_context
def ks_actors(context: click.Context) -> None:
    """Stream processing with Kafka Streams' semantics."""
    # `run` sets its own handlers, once the user's modules are imported.
    if context.invoked_subcommand != "run":
        heed_signals()


for _command in (
    backfill,
    check,
    describe,
    dev,
    dlq,
    export,
    lag,
    members,
    new,
    pause,
    query,
    reset,
    resume,
    run,
    send,
    snapshots,
    tail,
    tasks,
    topics,
    topology,
    version,
):
    ks_actors.add_command(_command)
