"""The documentation's code runs, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sybil import Document
from sybil.parsers.markdown import PythonCodeBlockParser

from tests.ks_actors.cli.new.start import PAGES as START

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^[ \t]*(?:```|~~~)[ \t]*(?:python|py)\w*\b(?P<rest>.*)$", re.MULTILINE)
FILE = re.compile(r'^```python title="(?P<name>\w+\.py)"\n(?P<code>.*?)^```$', re.MULTILINE | re.DOTALL)
TESTED = {"tutorial.md": 20, "testing.md": 13}
"""The pages with test files, and how many tests pass."""
BLOCK = re.compile(r"^(?P<indent> *)```[ {.]*(?P<language>\w*).*\n(?P<code>(?:.*\n)*?)(?P=indent)```$", re.MULTILINE)
OUTPUT = {"", "text"}
"""Blocks that nobody copies, and that cannot be wrapped: output and drawings."""
COLUMNS = 80
LINK = re.compile(r"\]\((?!https?:|#)(?P<path>[^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_run(page: Path) -> None:
    """A Python block of a page is either one that Sybil runs, or a file with its name as title, which the test below runs, or that of Start."""
    text = page.read_text(encoding="utf-8")
    run_by_sybil = list(Document.parse(str(page), PythonCodeBlockParser()).examples())
    files = FILE.findall(text)
    assert len(FENCE.findall(text)) == len(run_by_sybil) + len(files)
    assert not files or page.name in TESTED or page.name in START


def test_code_fits_the_site() -> None:
    """A line of code, of any language, has at most 80 columns: the site shows no more without scrolling."""
    blocks = [(page, block) for page in PAGES for block in BLOCK.finditer(page.read_text(encoding="utf-8")) if block["language"] not in OUTPUT]
    assert len(blocks) > len(PAGES), "the pattern finds nothing any more"
    lines = [(page, line.removeprefix(block["indent"])) for page, block in blocks for line in block["code"].splitlines()]
    assert [f"{page.name}: {line}" for page, line in lines if len(line) > COLUMNS] == []


@pytest.mark.parametrize(("page", "passed"), TESTED.items())
def test_test_files_pass(page: str, passed: int, pytester: pytest.Pytester, pytestconfig: pytest.Config) -> None:
    """The test files that a page shows pass, once for each seed that their markers ask for."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for name, code in FILE.findall(text):
        (pytester.path / name).write_text(code, encoding="utf-8")
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error")
    # An environment that was installed before has no entry point for the plugin.
    plugin = () if pytestconfig.pluginmanager.has_plugin("ks_actors") else ("-p", "ks_actors._pytest_plugin")
    result = pytester.runpytest_subprocess("--strict-markers", *plugin)
    result.assert_outcomes(passed=passed)


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links of the pages outside of docs/ lead to files that are there."""
    missing = [path for path in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / path).exists()]
    assert missing == []
