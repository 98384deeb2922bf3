"""Answers to commands that have other names in other tools."""

from __future__ import annotations

from typing import Final

import click

COMMANDS: Final[dict[str, dict[str, str]]] = {
    "ks-actors": {
        "agents": "describe MODULE:NAME",
        "console": "run MODULE:NAME",
        "consume": "tail TOPIC",
        "create": "topics create MODULE:NAME",
        "graph": "describe MODULE:NAME",
        "groups": "members --application-id ID, or lag --application-id ID",
        "list": "topics plan MODULE:NAME",
        "models": "describe MODULE:NAME",
        "produce": "send TOPIC --value TEXT",
        "publish": "send TOPIC --value TEXT",
        "start": "run MODULE:NAME",
        "status": "tasks, or check MODULE:NAME",
        "tables": "query STORE",
        "worker": "run MODULE:NAME",
    },
    "topics": {
        "describe": "topics plan MODULE:NAME",
        "list": "topics plan MODULE:NAME, which has the topics of an app",
        "show": "topics plan MODULE:NAME",
    },
}
"""The command to write, by the group and the name that it lacks."""


class OtherNames(click.Group):
    """A group of commands that knows the names that other tools have for them."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the arguments. Raises UsageError, with the right one if known."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            names = COMMANDS.get(self.name or "", {})
            if args and (found := names.get(args[0])) is not None:
                text = f"No such command {args[0]!r}: write {found}"
                raise click.UsageError(text, ctx) from error
            raise


class TakesOne(click.Command):
    """A command with a topic as its only argument; a second one is taken for the value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Raises UsageError, which names the option for a value."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" in error.format_message():
                value = given[-1]
                text = f"{error.format_message()}: the value is an option, --value {value!r}"
                raise click.UsageError(text, ctx) from error
            raise
