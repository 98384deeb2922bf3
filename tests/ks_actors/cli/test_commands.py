"""Every command is documented, and tried on a real broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ks_actors.cli._main import ks_actors

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
TABLES = {"check", "create", "diff", "lag", "list", "members", "plan", "snapshots", "tasks", "version"}
ON_KAFKA = "".join((ROOT / "tests" / "kafka" / name).read_text(encoding="utf-8") for name in ("test_cli.py", "test_reset.py", "test_history.py"))
ELSEWHERE = {"backfill", "dev", "new", "version"}
"""Commands with nothing of a broker, or with tests of their own against embedded logs."""


def commands(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield all commands that do something, with their names."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
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


@pytest.mark.parametrize("names", ALL, ids=" ".join)
def test_a_command_that_asks_a_log_takes_its_servers_by_an_option(names: tuple[str, ...]) -> None:
    """And the id of the application, all under the same names; only what looks at a topology alone asks none."""
    options = {option for parameter in ALL[names].params for option in parameter.opts}
    if "--conf" in options and names[0] not in {"describe", "dev", "topology"}:
        assert {"-c", "--config", "--command-config", "--bootstrap-servers", "--bootstrap-server", "--application-id"} <= options


@pytest.mark.parametrize("names", [("tail",), ("send",), ("lag",), ("members",), ("dlq", "list")], ids=" ".join)
def test_a_command_without_servers_says_how_to_name_them(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is about no app of the user's, so it names none."""
    monkeypatch.delenv("KS_ACTORS_BOOTSTRAP_SERVERS", raising=False)
    topic = {"tail": ["orders"], "send": ["orders", "--value=a"], "list": ["--topic=dead"]}.get(names[-1], ["--application-id=shop"])
    result = CliRunner().invoke(ALL[names], topic)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no Kafka servers are named: give --bootstrap-servers HOST:PORT" in result.stderr


@pytest.mark.parametrize("names", [names for names in ALL if names[-1] not in ELSEWHERE], ids=" ".join)
def test_a_command_is_tried_on_a_real_broker(names: tuple[str, ...]) -> None:
    """By the tests of `make check-cli`."""
    quoted = ", ".join(f'"{name}"' for name in names)
    assert quoted in ON_KAFKA, f"tests/kafka has no test of {' '.join(names)}"
