"""The list of all public names is current, and the changelog has the form that CONTRIBUTING describes."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests" / "house" / "public_api" / "now.txt"
MOST_LINES = 80
# Words of a reader who knows an earlier state: a feature is described as it is.
EARLIER = re.compile(r"\b(?:now|no longer|any more|formerly|used to|before,)\b", re.IGNORECASE)


def test_the_list_of_public_names_is_current() -> None:
    """Each public name with its signature is in the list: make it by `scripts/public_api --write`, and read the difference in git."""
    command = [sys.executable, str(ROOT / "scripts" / "public_api")]
    found = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own command
    assert found.stdout == LIST.read_text(encoding="utf-8"), "run scripts/public_api --write, and see the difference in git"


def test_help_works_for_every_public_class() -> None:
    """`help` and `inspect.signature` of each public class work: the names in a Struct's annotations exist at run time."""
    names = re.findall(r"^class ([\w.]+)", LIST.read_text(encoding="utf-8"), re.MULTILINE)
    for name in names:
        kind = pydoc.locate(name)
        assert isinstance(kind, type), name
        with suppress(ValueError):  # builtins, and classes that nobody makes, have no signature
            inspect.signature(kind)
        assert pydoc.render_doc(kind)


def test_the_changelog_describes_features_briefly() -> None:
    """A version's section has at most 80 lines, and its lines describe features, not repairs."""
    for section in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        lines = section.splitlines()
        assert len(lines) <= MOST_LINES, lines[0]
        assert [line for line in lines if EARLIER.search(line)] == []
