"""Commands on pages are ones that exist, and the session of `ks-actors dev` is one that happens."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ks_actors.cli._main import ks_actors

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "command-line.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^[ \t]*```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^[ \t]*```$", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"^[ \t]*(?:\$ |exec |ExecStart=)?(?:\w+=\S* )*(?:\S*/)?(?P<line>ks-actors [^\n]+)$", re.MULTILINE)
SESSION = re.compile(r"^\$ ks-actors dev (?P<target>\S+) <<END\n(?P<commands>.*?)^END\n(?P<output>.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_session_of_dev_is_one_of_a_new_project(tmp_path: Path) -> None:
    """The commands of the page give its output, in any order of the topics."""
    session = SESSION.search(PAGE.read_text(encoding="utf-8"))
    assert session is not None
    ours = os.environ | {"PYTHONPATH": str(ROOT)}

    def run(*arguments: str, directory: Path = tmp_path, commands: str = "") -> str:
        command = [sys.executable, "-m", "ks_actors.cli", *arguments]
        done = subprocess.run(command, cwd=directory, input=commands, env=ours, capture_output=True, text=True, check=False)  # noqa: S603 - our own
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("new", "shop")
    shown = run("dev", session["target"], directory=tmp_path / "shop", commands=session["commands"])
    assert sorted(shown.splitlines()) == sorted(session["output"].splitlines())


def words_of(text: str) -> Iterator[tuple[list[str], bool]]:
    """Yield the words of each command on a page, and whether it is whole: commands in prose may be in part."""
    for block in BLOCK.finditer(text):
        if block["language"] == "python":
            continue
        code = block["code"].replace("\\\n", " ")
        for found in LINE.finditer(code):
            yield shlex.split(re.split(r" (?:<<|&|[|>])", found["line"])[0], comments=True), True
        for listed in re.findall(r"\[\s*\"ks-actors\",[^\]]*\]", code):
            yield re.findall(r"\"([^\"]*)\"", listed), True
    for found in re.findall(r"`(ks-actors [a-z][^`\n]*)`", BLOCK.sub("", text)):
        yield shlex.split(found), False


def check(words: list[str], *, whole: bool) -> None:
    """Parse a command as the command line would, but for the values of files. Raises click.UsageError."""
    command: click.Command = ks_actors
    context = click.Context(command, info_name=words.pop(0))
    while isinstance(command, click.Group) and words:
        found = command.get_command(context, words.pop(0))
        assert found is not None, "there is no such command"
        command, context = found, click.Context(found, info_name=found.name, parent=context)
    options = {name for param in command.get_params(context) for name in (*param.opts, *param.secondary_opts)}
    if not whole:
        assert {word.partition("=")[0] for word in words if word.startswith("-")} <= options
        return
    given, left, _ = command.make_parser(context).parse_args(list(words))
    assert left == []
    for param in command.params:
        value = given.get(param.name or "")
        missing = value is None or param.value_is_missing(value)
        assert not (missing and param.required), f"{param.name} is missing"
        if isinstance(param.type, click.Choice | click.IntRange) and not missing:
            param.type_cast_value(context, value)


def test_commands_on_pages_parse() -> None:
    """Each `ks-actors` command in a block, a container or the prose of a page exists, with its options and arguments."""
    wrong, found = {}, []
    for page in PAGES:
        for words, whole in words_of(page.read_text(encoding="utf-8")):
            found.append(whole)
            line = shlex.join(words)
            try:
                check(words, whole=whole)
            except (click.UsageError, AssertionError) as error:
                wrong[f"{page.name}: {line}"] = str(error).partition("\n")[0]
    assert wrong == {}
    assert found.count(True) > 50, "the search finds nothing any more"
    assert found.count(False) > 40, "the search finds nothing any more"


@pytest.mark.parametrize(
    "line", ["ks-actors run shop:app --prbes 9464", "ks-actors lags", "ks-actors describe", "ks-actors run shop:app --page high"]
)
def test_wrong_commands_are_found(line: str) -> None:
    """The rule for commands refuses unknown commands and options, missing arguments and wrong values."""
    with pytest.raises((click.UsageError, AssertionError)):
        check(line.split(), whole=True)
