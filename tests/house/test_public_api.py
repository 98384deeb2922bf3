"""The list of all public names: it is current, and its changes are in the changelog."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTS = ROOT / "tests" / "house" / "public_api"


def words(line: str) -> set[str]:
    """Return the last two parts of the name in a line of the list: class and member, or module and name."""
    name = re.split(r"[(: ]", re.sub(r"^(?:class|async) |(?<=\.)async ", "", line))[0]
    return set(name.split(".")[-2:]) - {"ks_actors", "actors"}


def test_the_list_of_public_names_is_current() -> None:
    """Make it by `scripts/public_api --write`, and write the line for CHANGELOG.md."""
    command = [sys.executable, str(ROOT / "scripts" / "public_api")]
    found = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own command
    assert found.stdout == (LISTS / "now.txt").read_text(encoding="utf-8"), "run scripts/public_api --write, and see the difference in git"


def test_changes_of_public_names_are_in_the_changelog() -> None:
    """Each name that is new, gone or has another signature since the moves of the house: it, or its class, is named there."""
    before, now = (set((LISTS / f"{name}.txt").read_text(encoding="utf-8").splitlines()) for name in ("before", "now"))
    changelog = set(re.findall(r"\w+", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))
    assert [line for line in sorted(before ^ now) if words(line).isdisjoint(changelog)] == []
