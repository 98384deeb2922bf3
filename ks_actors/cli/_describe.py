"""`ks-actors describe`: a topology in words, as a picture, or for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from ks_actors.cli._application import settings_options
from ks_actors.cli._output import show_json
from ks_actors.cli._target import topology_of

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("target", metavar="MODULE:NAME")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "mermaid", "json"]),
    default="text",
    show_default=True,
    help="Kafka Streams' text, a Mermaid flowchart, or JSON.",
)
@settings_options
def describe(
    *, target: str, form: str, conf: tuple[str, ...], file: Path | None, as_json: bool
) -> None:
    """Print a topology: its nodes, stores and topics. Asks no broker.

    MODULE:NAME and settings are those of `ks-actors run`. --json is short for --format json.
    """
    description = topology_of(target, conf, file).describe()
    if as_json or form == "json":
        show_json(json.loads(description.to_json()))
    elif form == "mermaid":
        click.echo(description.mermaid(), nl=False)
    else:
        click.echo(str(description), nl=False)
