"""All commands of `ks-actors`. The module of a command is imported when that command runs."""

from __future__ import annotations

from importlib import import_module
from typing import Final, final

import click

from ks_actors.cli._output import OtherNames
from ks_actors.cli._version import VERSION
from ks_actors.system import heed_signals

COMMANDS: Final = {
    "backfill": (
        "_backfill",
        "Run a topology over all records of its topics, in this process or on Spark.",
    ),
    "check": (
        "_check",
        "Check settings, brokers, topics and permissions of an app, without running it.",
    ),
    "describe": ("_describe", "Print a topology: its nodes, stores and topics."),
    "dev": (
        "dev",
        "Run an app without servers: on an embedded log, with commands to send and see records.",
    ),
    "dlq": ("_letters", "Look at dead letters, and write their records back."),
    "export": ("_export", "Write the committed part of tables and topics to Parquet files."),
    "lag": ("_groups", "Print how many records each input partition has that are not committed."),
    "members": (
        "_groups",
        "Print the members of an application's group: client ids, hosts and partitions.",
    ),
    "new": ("new", "Make a project: an app, its tests, settings, and containers for it and Kafka."),
    "pause": (
        "_remote",
        "Pause processing in a running instance until `resume`; it keeps its tasks.",
    ),
    "query": (
        "_remote",
        "Print rows of a store of a running instance, or of all instances.",
    ),
    "reset": (
        "_reset",
        "Set an application back, so that its next start counts from the beginning.",
    ),
    "resume": ("_remote", "Resume processing in a paused instance: all queries, or one."),
    "run": ("_run", "Run an app until SIGINT or SIGTERM, or until it ends by itself."),
    "send": ("_records", "Write one record to a topic, or one for each line of stdin."),
    "snapshots": (
        "_snapshots",
        "Print the snapshots at the setting snapshot_uri, the newest first.",
    ),
    "tail": ("_records", "Print the records of a topic as they come, until SIGINT."),
    "tasks": ("_remote", "Print the tasks of a running instance, with their progress and waits."),
    "topics": ("_topics", "Show or create the topics that an application needs."),
    "topology": ("_diff", "Compare versions of a topology."),
    "version": (
        "_versions",
        "Print the versions of ks-actors, of Python and of the packages that it uses.",
    ),
}
"""The module of each command, and the first sentence of its help."""


@final
class _Commands(OtherNames):
    """A group that lists commands without importing them: all imports take half a second."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        """Return the names in order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        """Import a command; return None if no command has that name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(
            import_module(f"ks_actors.cli.{COMMANDS[cmd_name][0]}"), cmd_name
        )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names with what each does."""
        listed = {name: click.Command(name, help=text) for name, (_, text) in COMMANDS.items()}
        click.Group(commands=listed).format_commands(ctx, formatter)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(message=VERSION.replace("%", "%%"))
@click.pass_context
def ks_actors(context: click.Context) -> None:
    """Stream processing with Kafka Streams' semantics."""
    # `run` sets its own handlers, once the user's modules are imported.
    if context.invoked_subcommand != "run":
        heed_signals()
