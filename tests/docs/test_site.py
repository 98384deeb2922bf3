"""The site has each page and each public name in one place; it builds, and works from disk."""

from __future__ import annotations

import inspect
import os
import re
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from playwright.sync_api import Page, sync_playwright

import actors
import actors.testing
import ks_actors.batch
import ks_actors.letters
import ks_actors.log
import ks_actors.metrics.exporters
import ks_actors.query
import ks_actors.registry
import ks_actors.serdes
import ks_actors.snapshots
import ks_actors.testing
import ks_actors.tracing
import ks_actors.web
from tests.ks_actors.web.browser import require_browser

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
MODULES = (
    actors,
    actors.testing,
    ks_actors,
    ks_actors.batch,
    ks_actors.letters,
    ks_actors.log,
    ks_actors.metrics,
    ks_actors.metrics.exporters,
    ks_actors.query,
    ks_actors.registry,
    ks_actors.serdes,
    ks_actors.snapshots,
    ks_actors.testing,
    ks_actors.tracing,
    ks_actors.web,
)
IN_SHORT = re.compile(r'\A(?:---\n(?:.+\n)+---\n+)?# .+\n\n!!! abstract "In short"\n((?:    .+\n)+)')
SENTENCE_ENDS = re.compile(r"[.!?](?=\s|$)")
LARGEST_BYTES = 200_000
SCREEN = {"width": 1280, "height": 900}
LONGEST_SCREENS = 20


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def slug(heading: str) -> str:
    """Return the anchor that Python-Markdown gives a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def anchors_of(page: str) -> set[str]:
    text = re.sub(r"^```.*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def is_elsewhere(module: ModuleType, name: str) -> bool:
    """List modules, versions, and names that another module of the reference exports, too."""
    value = getattr(module, name)
    other = {ks_actors: ks_actors.serdes, ks_actors.registry: ks_actors}.get(module)
    return name == "__version__" or inspect.ismodule(value) or (other is not None and value is getattr(other, name, None))


def public_names() -> set[str]:
    return {f"{module.__name__}.{name}" for module in MODULES for name in module.__all__ if not is_elsewhere(module, name)}


@pytest.mark.parametrize("page", PAGES)
def test_each_page_begins_with_a_summary(page: str) -> None:
    """A page has one to three sentences under its title."""
    found = IN_SHORT.match(text_of(page))
    assert found is not None
    assert 1 <= len(SENTENCE_ENDS.findall(re.sub(r"`[^`]*`|\d\.\d", "", found[1]))) <= 3


def test_navigation_has_each_page_once() -> None:
    """No page is missing in the navigation, and none is in it twice."""
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2].partition("\nhooks:")[0]
    assert sorted(re.findall(r"(\S+\.md)$", nav, re.MULTILINE)) == PAGES


def test_needs_lead_to_sections() -> None:
    """The table of tasks has thirty rows at least, and each leads to a section that exists."""
    links = re.findall(r"^\| [^|]+ \| \[[^\]]+\]\(([\w./-]+)(?:#([\w-]+))?\) \|$", text_of("needs.md"), re.MULTILINE)
    rows = re.findall(r"^\| (?!when|---)", text_of("needs.md").replace("|---", "| ---"), re.MULTILINE)
    assert len(links) == len(rows) >= 30
    assert [f"{page}#{anchor}" for page, anchor in links if page not in PAGES or (anchor and anchor not in anchors_of(page))] == []


def test_reference_has_each_public_name_once() -> None:
    """A public name stands on one page of the reference, and only there."""
    listed = Counter(name for page in PAGES if page.startswith("reference") for name in re.findall(r"^::: (\S+)$", text_of(page), re.MULTILINE))
    assert [name for name, times in listed.items() if times > 1] == []
    assert public_names() - set(listed) == set()


def test_diagrams_are_as_the_script_draws_them(tmp_path: Path) -> None:
    """Each diagram is drawn by scripts/diagrams, says its content in words, and is on a page."""
    script = runpy.run_path(str(ROOT / "scripts" / "diagrams"))
    pages = "".join(map(text_of, PAGES))
    for drawing in script["drawings"]():
        drawn = (DOCS / "images" / f"{drawing.name}.svg").read_text(encoding="utf-8")
        assert drawn == drawing.svg(), "run scripts/diagrams"
        assert "<title" in drawn
        assert "<desc" in drawn
        assert f"images/{drawing.name}.svg" in pages
    assert {path.stem for path in (DOCS / "images").glob("*.svg")} == {drawing.name for drawing in script["drawings"]()}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, of which warnings are errors."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(  # noqa: S603 - our own site, by our own interpreter
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


@pytest.fixture
def browser_page() -> Iterator[Page]:
    """Open a page in a real browser, dark and without network."""
    path = require_browser()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser.new_context(viewport=SCREEN, color_scheme="dark", offline=True).new_page()  # type: ignore[arg-type]
        browser.close()


@pytest.mark.extended
@pytest.mark.heavy("a build of the site")
def test_site_is_whole(site: Path) -> None:
    """No page needs anything from another host, each public name is rendered, and no page of the reference is larger than its limit."""
    anchors: set[str] = set()
    for page in site.rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        assert re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="https?://', html) == []
        assert 'class="mermaid"' not in html  # a script from elsewhere would draw it
        if page.name.startswith("reference"):
            anchors |= set(re.findall(r'id="([^"]+)"', html))
            assert page.stat().st_size <= LARGEST_BYTES, page.name
    assert public_names() - anchors == set()


@pytest.mark.extended
@pytest.mark.heavy("a build of the site")
def test_each_page_is_there_as_markdown(site: Path) -> None:
    """`llms.txt` lists each page with its summary, as Markdown beside it that names no directive of the site."""
    lines = (site / "llms.txt").read_text(encoding="utf-8").splitlines()
    found = [match for line in lines if (match := re.fullmatch(r"- \[.+\]\((\S+\.md)\): .+", line))]
    assert sorted(match[1] for match in found) == PAGES
    for page in PAGES:
        assert "\n::: " not in (site / page).read_text(encoding="utf-8")
    assert "restart" in (site / "reference-testing-apps.md").read_text(encoding="utf-8")


@pytest.mark.extended
@pytest.mark.unmeasured
@pytest.mark.heavy("a build of the site, and a browser")
@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("health", "health.html"),
        ("pydantic", "types.html"),
        ("deploy", "how-to/deploy.html"),
        ("MSK", "login.html"),
        ("timezone", "needs.html"),
    ],
)
def test_search_works_from_disk(site: Path, browser_page: Page, word: str, page: str) -> None:
    """The search of the site finds words when it is opened as a file."""
    browser_page.goto((site / "index.html").as_uri())
    browser_page.fill(".md-search__input", word)
    browser_page.wait_for_selector(f".md-search-result__link[href*='{page}']", state="attached")


@pytest.mark.extended
@pytest.mark.unmeasured
@pytest.mark.heavy("a build of the site, and each of its pages in a browser")
@pytest.mark.timeout(600)
def test_pages_fit_the_screen(site: Path, browser_page: Page) -> None:
    """No page scrolls sideways, on a desk or on a phone, dark or light, and none is longer than twenty screens."""
    long, wide = {}, {}
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":  # has absolute addresses, for servers
            continue
        browser_page.set_viewport_size(SCREEN)  # type: ignore[arg-type]
        browser_page.emulate_media(color_scheme="light")
        browser_page.goto(page.as_uri())
        screens = browser_page.evaluate("document.documentElement.scrollHeight") / SCREEN["height"]
        if screens > LONGEST_SCREENS:
            long[page.name] = round(screens, 1)
        for width, scheme in ((SCREEN["width"], "light"), (390, "dark")):
            browser_page.set_viewport_size({"width": width, "height": SCREEN["height"]})
            browser_page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            if browser_page.evaluate("document.documentElement.scrollWidth") > width:
                wide[page.name] = width
    assert (long, wide) == ({}, {})
