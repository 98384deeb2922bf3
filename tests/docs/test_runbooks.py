"""The runbooks have an entry for each health reason and each error, and the entries are true to the sources."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from pathlib import Path

import pytest

import actors
import ks_actors
from ks_actors import HealthReason

ROOT = Path(__file__).parents[2]
RUNBOOKS = ROOT / "docs" / "runbooks"
PAGES = sorted(path for path in RUNBOOKS.glob("*.md") if path.name != "index.md")
ENTRY = re.compile(r"^### (\w+)\n\n((?:- .+\n)+)", re.MULTILINE)
PARTS = ["Symptom", "Meaning", "Check", "Mend", "Prevent"]
LINES = re.compile(r"^- \*\*Symptom:\*\* (.+)$", re.MULTILINE)
JOINED = re.compile(r'"\s*\n\s*f?"')
NO_LINES = ("ks-actors ", "except ")
"""Words in the place of lines of the log: commands and code."""


def entries(page: Path) -> list[tuple[str, str]]:
    return ENTRY.findall(page.read_text(encoding="utf-8"))


def errors() -> set[str]:
    public = [(name, getattr(module, name)) for module in (ks_actors, actors) for name in module.__all__]
    return {name for name, kind in public if inspect.isclass(kind) and issubclass(kind, BaseException)}


def test_each_reason_and_each_error_has_one_entry() -> None:
    """Each member of HealthReason and each public error has one entry, and no other name has one."""
    listed = Counter(name for page in PAGES for name, _ in entries(page))
    assert [name for name, times in listed.items() if times > 1] == []
    assert set(listed) == {reason.name for reason in HealthReason} | errors()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_entries_have_all_their_parts(page: Path) -> None:
    """An entry tells the symptom, its meaning, what to check, the remedy, and how to prevent it."""
    assert len(entries(page)) == page.read_text(encoding="utf-8").count("\n### ")
    for name, text in entries(page):
        assert re.findall(r"^- \*\*(\w+):\*\* \S", text, re.MULTILINE) == PARTS, name


def test_the_first_page_leads_to_each_entry() -> None:
    """The list of all sections has each entry, page by page."""
    index = (RUNBOOKS / "index.md").read_text(encoding="utf-8").partition("## All sections")[2]
    expected = [f"[{name}]({page.name}#{name.lower()})" for page in PAGES for name, _ in entries(page)]
    assert sorted(re.findall(r"\[\w+\]\(\w+\.md#\w+\)", index)) == sorted(expected)


@pytest.mark.parametrize("reason", HealthReason, ids=lambda reason: reason.name)
def test_a_health_reason_names_its_entry(reason: HealthReason) -> None:
    """`HealthReason.runbook` is the file and the anchor of the entry."""
    path, _, anchor = reason.runbook.partition("#")
    assert (reason.name, anchor) in {(name, name.lower()) for name, _ in entries(ROOT / path)}


def test_lines_of_the_log_are_those_of_the_sources() -> None:
    """The words of a symptom that are quoted from the log, or from an error, are in the sources."""
    sources = "".join(
        JOINED.sub("", path.read_text(encoding="utf-8")) for package in ("ks_actors", "actors") for path in (ROOT / package).rglob("*.py")
    )
    quoted = [words for page in PAGES for line in LINES.findall(page.read_text(encoding="utf-8")) for words in re.findall(r"`([^`]+)`", line)]
    lines = [words for words in quoted if " " in words.strip() and not words.startswith(NO_LINES)]
    assert len(lines) > 40, "the pattern finds nothing any more"
    assert [words for words in lines if words not in sources] == []
