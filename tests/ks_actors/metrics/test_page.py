"""The page about metrics."""

from __future__ import annotations

import runpy
from pathlib import Path

from ks_actors.metrics.families import GROUPS, catalogue

ROOT = Path(__file__).parents[3]


def test_the_page_has_exactly_the_metrics_that_there_are() -> None:
    """Its tables are those that scripts/metrics_page writes from the catalogue."""
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert runpy.run_path(str(ROOT / "scripts" / "metrics_page"))["page"](text) == text, "run scripts/metrics_page"


def test_a_group_has_each_name_once_and_a_meaning_without_a_period() -> None:
    """Names are unique within their group, and so are groups."""
    assert len({group.name for group in GROUPS}) == len(GROUPS)
    for group in GROUPS:
        names = [family.name for family in group.families]
        assert len(names) == len(set(names))
    assert [family.name for family in catalogue() if family.description.endswith(".") or not family.description] == []
