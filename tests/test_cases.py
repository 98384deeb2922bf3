"""The cases that `--few` and `--all-but` choose."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended

ROOT = Path(__file__).parent.parent
SUBJECT = "tests/actors/test_mailbox.py"


def collected(*options: str) -> set[str]:
    """Return the ids of the cases that a run with these options has."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--quiet", "--collect-only", *options, SUBJECT]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout  # noqa: S603 - our own command
    return {line for line in said.splitlines() if "::" in line}


def test_every_case_runs_once_in_a_run_of_a_few_and_a_run_of_all_but_those() -> None:
    """The two runs shuffle with seeds of their own, and have all cases between them, none twice."""
    few = collected("--few", "3", "-p", "randomly", "--randomly-seed", "1")
    others = collected("--all-but", "3", "-p", "randomly", "--randomly-seed", "2")
    assert few
    assert others
    assert not few & others
    assert few | others == collected()
