"""Releases: version, changelog and tag agree, notes come from the changelog, and nothing is uploaded but by hand."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

import ks_actors

ROOT = Path(__file__).parents[2]
WORKFLOW = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
RELEASED = """# Changelog

Words.

## 1.1.0 (2030-12-31)

### DSL
- More: [all](docs/all.md), [site](https://x.test), [here](#dsl).

## 1.0.0 (2029-01-01)
- One.
"""
UNRELEASED = RELEASED.replace("2030-12-31", "unreleased")


@pytest.fixture(scope="module")
def release() -> Any:
    """Load the script, whose names are its own."""
    return SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "release")))


@pytest.mark.parametrize(
    ("of", "changelog", "commit", "said"),
    [
        ("1.1.0", UNRELEASED, ([], ["v1.0.0"], True), []),
        ("1.1.0", RELEASED, (["v1.1.0"], ["v1.0.0"], False), []),
        ("1.2.0", UNRELEASED, ([], [], False), ["pyproject.toml is of version 1.2.0, the newest section of CHANGELOG.md of 1.1.0"]),
        ("1.1.0", RELEASED, (["v1.2.0"], [], False), ["the commit has the tag v1.2.0, its version needs v1.1.0"]),
        ("1.1.0", RELEASED, ([], ["v1.1.0"], False), ["v1.1.0 is the tag of another commit"]),
        ("1.1.0", UNRELEASED, (["v1.1.0"], [], False), ["the commit has a tag: give the day of 1.1.0 in CHANGELOG.md"]),
        ("1.1.0", RELEASED, (["v1.1.0"], [], True), ["the commit has a tag, but files differ from it"]),
    ],
)
def test_version_changelog_and_tag_agree(release: Any, of: str, changelog: str, commit: tuple[list[str], list[str], bool], said: list[str]) -> None:
    """Each disagreement is a problem that says what to change; work on an untagged commit is none."""
    found = list(release.problems(of, changelog, release.Commit(*commit)))
    assert len(found) == len(said)
    assert all(map(str.startswith, found, said))


def test_the_changelog_of_the_tree_is_of_its_version(release: Any) -> None:
    """The checkout may always be built, and its package has the version of pyproject.toml."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert list(release.problems(release.version(), changelog, release.Commit([], [], changed=False))) == []
    assert ks_actors.__version__ == release.version()


def test_notes_are_the_newest_section_with_links_that_lead_somewhere(release: Any) -> None:
    """They have no older section; links to files get the address that is given, other links stay."""
    notes = release.notes(RELEASED, "https://host.test/blob/v1.1.0/")
    assert notes.startswith(
        "# ks-actors 1.1.0\n\n### DSL\n- More: [all](https://host.test/blob/v1.1.0/docs/all.md), [site](https://x.test), [here](#dsl).\n\n"
    )
    assert "One" not in notes
    assert "[all](docs/all.md)" in release.notes(RELEASED)


def test_a_changelog_without_a_section_is_refused(release: Any) -> None:
    """The error shows the form of its heading."""
    with pytest.raises(SystemExit, match=r"has no section such as '## 1\.2\.3 \(unreleased\)'"):
        release.notes("# Changelog\n\n## Next\n")


def test_wheels_are_built_for_the_supported_versions_of_python() -> None:
    """The classifiers, the wheels of both builds, the workflow and SUPPORT.md name the same versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    minors = re.findall(r"Python :: 3\.(\d+)", "\n".join(project["project"]["classifiers"]))
    assert project["tool"]["cibuildwheel"]["build"].split() == [f"cp3{minor}-*" for minor in minors]
    assert f"for minor in {' '.join(minors)}; do" in (ROOT / "scripts" / "wheels").read_text(encoding="utf-8")
    assert re.findall(r"^ +3\.(\d+)$", WORKFLOW, re.MULTILINE) == minors
    assert f"| Python | 3.{minors[0]} to 3.{minors[-1]}," in (ROOT / "SUPPORT.md").read_text(encoding="utf-8")


def test_files_are_uploaded_only_by_hand_and_from_a_tag() -> None:
    """One job of the workflow uploads; a person has to ask for it, and to approve it. Each action is fixed by the hash of its commit."""
    jobs = yaml.safe_load(WORKFLOW)["jobs"]
    [uploads] = [job for job in jobs.values() if any("pypi-publish" in step.get("uses", "") for step in job["steps"])]
    assert uploads["if"] == "inputs.upload && startsWith(github.ref, 'refs/tags/v')"
    assert uploads["environment"] == "release"
    assert not re.search(r"twine upload|secrets\.|password", WORKFLOW)
    actions = re.findall(r"uses: (\S+)", WORKFLOW)
    assert [each for each in actions if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each)] == []
