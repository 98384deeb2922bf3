"""An app that cannot be made is told by each command in one line."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.ks_actors.cli.test_commands import ALL

HERE = "tests.ks_actors.cli.broken"
FILE = str(Path(__file__).with_name("broken.py"))
# The line of the error, and whether it names a place in the user's code.
TOPOLOGIES = {
    "without_serdes": ("TopologyError: serdes are missing: key and value of source", False),
    "wrong_argument": ("TopologyError: ", True),
    "reads_nothing": ("TopologyError: the topology of App reads no topic", False),
    "fails_to_build": ("TopologyError: ", True),
}
TARGETS = {"target", "old"}
# These look at the topology alone, which is none of an app yet.
OF_TOPOLOGIES = {("describe",), ("topology", "diff")}
NEEDED = {"directory": ["--to", "/nowhere"], "letter": ["dead-0@1"], "topic": ["in"]}


def arguments(command: click.Command, target: str) -> list[str]:
    """Return a right command line for an app at a target."""
    found: list[str] = []
    for each in command.params:
        if isinstance(each, click.Argument) and each.name in {"target", "old", "new"}:
            found.append(target)
        elif each.name == "target":
            found += ["--app", target]
        elif each.name == "tables":
            found += ["--table", "counts"]
        elif each.required:
            found += NEEDED[str(each.name)]
    return [*found, "-c", "application_id=broken", "-c", "log=memory://"]


OF_APPS = {names: command for names, command in ALL.items() if TARGETS & {str(each.name) for each in command.params}}


@pytest.mark.parametrize("broken", TOPOLOGIES)
@pytest.mark.parametrize("names", OF_APPS, ids=" ".join)
def test_an_error_about_the_topology_is_one_line(names: tuple[str, ...], broken: str) -> None:
    """With exit code 1, the target, the kind of the error, and the place in the user's code where there is one."""
    if names in OF_TOPOLOGIES and broken in {"without_serdes", "reads_nothing"}:
        return
    text, placed = TOPOLOGIES[broken]
    result = CliRunner().invoke(OF_APPS[names], arguments(OF_APPS[names], f"{HERE}:{broken}"))
    assert result.stderr.startswith(f"Error: {HERE}:{broken}: {text}"), result.stderr
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert (f" ({FILE}:" in result.stderr) is placed


@pytest.mark.parametrize("names", OF_APPS, ids=" ".join)
def test_an_error_about_a_setting_is_a_usage_error(names: tuple[str, ...]) -> None:
    """With exit code 2, also for the settings that the user's code gives."""
    result = CliRunner().invoke(OF_APPS[names], arguments(OF_APPS[names], f"{HERE}:wrong_setting"))
    assert "acks" in result.stderr
    assert (result.exit_code, "Traceback" in result.stderr) == (2, False)
