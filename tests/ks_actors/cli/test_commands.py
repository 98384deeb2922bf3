"""Every command is documented, and tried on a real broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ks_actors.cli._main import ks_actors

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
TABLES = {"check", "create", "diff", "lag", "list", "members", "plan", "snapshots", "tasks", "version"}
ON_KAFKA = "".join((ROOT / "tests" / "kafka" / name).read_text(encoding="utf-8") for name in ("test_cli.py", "test_reset.py", "test_history.py"))
ELSEWHERE = {"backfill", "version"}
"""Commands with nothing of a broker, or with tests of their own against logs in directories."""


def commands(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield all commands that do something, with their names."""
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from commands(command, (*before, name))
        else:
            yield (*before, name), command


ALL = dict(commands(ks_actors))


@pytest.mark.parametrize("names", ALL, ids=" ".join)
def test_a_command_has_help_and_a_place_in_the_docs(names: tuple[str, ...]) -> None:
    """Each of its options says what it does."""
    command = ALL[names]
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help or parameter.name in {"numbers", "time_to", "limit"}, parameter.name
    assert re.search(rf"`?(ks-actors )?{' '.join(names)}\b", PAGE), f"docs/command-line.md lacks {' '.join(names)}"


@pytest.mark.parametrize("names", ALL, ids=" ".join)
def test_a_command_that_prints_a_table_prints_json_too(names: tuple[str, ...]) -> None:
    """By `--json`."""
    if names[-1] in TABLES:
        assert "as_json" in {parameter.name for parameter in ALL[names].params}


@pytest.mark.parametrize("names", [names for names in ALL if names[-1] not in ELSEWHERE], ids=" ".join)
def test_a_command_is_tried_on_a_real_broker(names: tuple[str, ...]) -> None:
    """By the tests of `make check-cli`."""
    quoted = ", ".join(f'"{name}"' for name in names)
    assert quoted in ON_KAFKA, f"tests/kafka has no test of {' '.join(names)}"
