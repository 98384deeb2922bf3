"""The crash tests of the pages can fail: under at-least-once they do."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINES = '        processing_guarantee="exactly_once_v2",\n        linger_ms=0,'


@pytest.mark.parametrize("page", ["shop-5-apps.md", "how-to/test.md", "start-test.md"])
def test_at_least_once_fails_the_crash_tests_of_a_page(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same code with the other guarantee counts records twice, so the test of the page proves something."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    if page == "start-test.md":  # its test imports the program of the page before
        program = BLOCK.findall((DOCS / "start-first-app.md").read_text(encoding="utf-8"))
        module = ModuleType("totals")
        monkeypatch.setitem(sys.modules, "totals", module)
        exec("".join(block for block in program if "def topology" in block), module.__dict__)  # noqa: S102 - of a page
    place = next(number for number, block in enumerate(blocks) if LINES in block)
    names = ModuleType("page").__dict__
    monkeypatch.setitem(sys.modules, "page", ModuleType("page"))
    for block in blocks[:place]:
        exec(block, names)  # noqa: S102 - of a page
    changed = blocks[place].replace(LINES, LINES.replace("exactly_once_v2", "at_least_once"))
    with pytest.raises(AssertionError):
        exec(changed, names)  # noqa: S102 - of a page
        names["test_each_order_counts_once_although_the_app_crashes"](0)
