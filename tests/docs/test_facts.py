"""Figures and lists in prose agree with the code: defaults in sentences, dependencies, and the list of missing features."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from ks_actors import StreamsConfig
from ks_actors.config._settings import SETTINGS

ROOT = Path(__file__).parents[2]
PROSE = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "ks_actors").rglob("*.py"))]
NAMED = re.compile(rf"\b({'|'.join(map(re.escape, SETTINGS))})`*,? \((?:default:? |by default )?(-?\d[\d,_]*)(?: ms| bytes| by default)?[),;:]")

ABSENT: dict[str, Callable[[], bool]] = {
    "web interface": lambda: find_spec("ks_actors.web") is None,
    "exporters": lambda: find_spec("ks_actors.metrics.exporters") is None,
    "traces": lambda: find_spec("ks_actors.tracing") is None,
    "command line": lambda: find_spec("ks_actors.cli") is None,
}
"""Words of the list, and whether that is indeed not there."""


def test_defaults_named_in_prose_are_those_of_the_settings() -> None:
    """A number in brackets behind a setting's name is its default, under at-least-once or exactly once."""
    configs = [StreamsConfig(application_id="app", processing_guarantee=each) for each in ("at_least_once", "exactly_once_v2")]
    wrong, seen = [], 0
    for path in PROSE:
        for name, number in NAMED.findall(path.read_text(encoding="utf-8")):
            seen += 1
            if int(number.replace(",", "").replace("_", "")) not in [getattr(each, name) for each in configs]:
                wrong.append(f"{path.relative_to(ROOT)}: {name} ({number})")
    assert wrong == []
    assert seen > 3, "the pattern finds nothing any more"


@pytest.mark.parametrize("words", ABSENT)
def test_future_offsets_are_absent(words: str) -> None:
    """The pages do not say of something that it is missing when it is there."""
    page = (ROOT / "docs" / "streams-semantics.md").read_text(encoding="utf-8")
    listed = words in page.split("## What is not there yet\n", 1)[1].split("\n## ", 1)[0]
    assert not listed or ABSENT[words]()


def test_pages_name_the_packages_that_the_core_needs() -> None:
    """The front page of the documentation names each dependency, and no other one that only extras have."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.split(r"[<>=;\[ ]", each)[0] for each in project["dependencies"]}
    sentence = next(line for line in (ROOT / "docs" / "index.md").read_text(encoding="utf-8").splitlines() if "besides the standard library" in line)
    named = set(re.findall(r"`([a-z]+)`", sentence))
    assert needed <= named
    assert named - needed <= {"actors", "aiokafka", "uvloop"}
