"""The documentation's code runs, its links lead somewhere, and it builds."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from sybil import Document
from sybil.parsers.markdown import PythonCodeBlockParser

import actors
import actors.testing
import ks_actors.batch
import ks_actors.letters
import ks_actors.log
import ks_actors.metrics.exporters
import ks_actors.query
import ks_actors.serdes
import ks_actors.testing
import ks_actors.web

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^[ \t]*(?:```|~~~)[ \t]*(?:python|py)\w*\b(?P<rest>.*)$", re.MULTILINE)
TEST_FILE = re.compile(r'^```python title="(?P<name>test_\w+\.py)"\n(?P<code>.*?)^```$', re.MULTILINE | re.DOTALL)
REFERENCES: dict[str, tuple[ModuleType, ...]] = {
    "reference.html": (actors, actors.testing),
    "reference-streams.html": (
        ks_actors,
        ks_actors.query,
        ks_actors.serdes,
        ks_actors.testing,
        ks_actors.letters,
        ks_actors.log,
        ks_actors.batch,
        ks_actors.metrics,
        ks_actors.metrics.exporters,
        ks_actors.web,
    ),
}
LINK = re.compile(r"\]\((?!https?:|#)(?P<path>[^)#\s]+)")


def is_elsewhere(module: ModuleType, name: str) -> bool:
    """List modules, versions, and names that another module of the page exports, too."""
    value = getattr(module, name)
    return name == "__version__" or inspect.ismodule(value) or (module is ks_actors and value is getattr(ks_actors.serdes, name, None))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_run(page: Path) -> None:
    """A Python block of a page is either one that Sybil runs, or a titled test file, which the test below runs."""
    text = page.read_text(encoding="utf-8")
    run_by_sybil = list(Document.parse(str(page), PythonCodeBlockParser()).examples())
    assert len(FENCE.findall(text)) == len(run_by_sybil) + len(TEST_FILE.findall(text))


@pytest.mark.parametrize(("page", "passed"), [("tutorial.md", 20), ("testing.md", 13)])
def test_test_files_pass(page: str, passed: int, pytester: pytest.Pytester, pytestconfig: pytest.Config) -> None:
    """The test files that a page shows pass, once for each seed that their markers ask for."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for name, code in TEST_FILE.findall(text):
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


@pytest.mark.extended
@pytest.mark.heavy("a build of the site")
def test_site_builds_and_documents_every_public_name(tmp_path: Path) -> None:
    """The site builds without a warning, its reference has each public name, and no page needs anything from another host."""
    done = subprocess.run(  # noqa: S603 - our own site, by our own interpreter
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for reference, modules in REFERENCES.items():
        anchors = set(re.findall(r'id="([^"]+)"', (tmp_path / reference).read_text(encoding="utf-8")))
        public = {f"{module.__name__}.{name}" for module in modules for name in module.__all__ if not is_elsewhere(module, name)}
        assert public - anchors == set()
    for page in tmp_path.rglob("*.html"):
        assert re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="https?://', page.read_text(encoding="utf-8")) == []
