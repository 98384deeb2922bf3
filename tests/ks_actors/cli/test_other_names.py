"""Commands and arguments of other tools are answered by the right ones."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from ks_actors.cli._main import ks_actors
from ks_actors.cli._output import COMMANDS

GUESSES = [(group, name) for group, names in COMMANDS.items() for name in names]


def told(*arguments: str) -> str:
    result = CliRunner().invoke(ks_actors, arguments, prog_name="ks-actors")
    assert result.exit_code == 2
    return result.output


@pytest.mark.parametrize(("group", "name"), GUESSES)
def test_a_command_of_another_tool_is_answered_by_one_that_exists(group: str, name: str) -> None:
    """The error says what to write, and that is a command."""
    answer = COMMANDS[group][name]
    within = [] if group == "ks-actors" else [group]
    assert f"No such command '{name}': write {answer}" in told(*within, name)
    for way in answer.split(", or "):
        words = [word for word in way.split(",")[0].split() if word.islower() and word.isalpha()]
        result = CliRunner().invoke(ks_actors, [*words, "--help"], prog_name="ks-actors")
        assert result.exit_code == 0, way


def test_an_unknown_command_is_told_as_click_does() -> None:
    """Without a guess."""
    assert "No such command 'frobnicate'." in told("frobnicate")


def test_a_value_beside_the_topic_is_told_as_an_option() -> None:
    """As of tools that take topic and value in a row."""
    assert "extra argument (hello): the value is an option, --value 'hello'" in told("send", "lines", "hello")


@pytest.mark.parametrize(
    ("target", "example"),
    [("count.py", "count:topology"), ("count", "count:topology"), ("shop/orders.py", "shop.orders:topology"), ("a b", "shop.orders:topology")],
)
def test_a_file_in_the_place_of_a_module_is_told_as_one(target: str, example: str) -> None:
    """The example has its name."""
    assert f"{target!r} is not module:name, such as {example}" in told("run", target)
