"""The page about the command line: its session of `ks-actors dev` is one that happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "command-line.md"
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
