"""All commands of `ks-actors`, one module each."""

from __future__ import annotations

import click

from ks_actors.cli._backfill import backfill
from ks_actors.cli._export import export
from ks_actors.cli._reset import reset
from ks_actors.cli._run import run
from ks_actors.cli._version import VERSION


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(message=VERSION.replace("%", "%%"))
def ks_actors() -> None:
    """Stream processing with Kafka Streams' semantics."""


ks_actors.add_command(backfill)
ks_actors.add_command(export)
ks_actors.add_command(reset)
ks_actors.add_command(run)
