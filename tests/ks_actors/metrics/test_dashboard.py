"""The Grafana dashboard of the package."""

from __future__ import annotations

import json
import re
import runpy
from importlib.resources import files
from pathlib import Path

from ks_actors.metrics import MetricKind
from ks_actors.metrics.exporters import prometheus_name
from ks_actors.metrics.exporters._names import label
from ks_actors.metrics.families import catalogue

ROOT = Path(__file__).parents[3]
FUNCTIONS = {"sum", "max", "avg", "count", "by", "rate", "increase", "histogram_quantile"}
OF_PROMETHEUS = {"instance", "value", "le"}


def shipped() -> str:
    """Return the dashboard as users have it."""
    return (files("ks_actors.metrics.exporters") / "grafana.json").read_text(encoding="utf-8")


def test_the_dashboard_is_the_one_that_the_script_writes() -> None:
    """It is in the package, and scripts/metrics_dashboard makes it."""
    assert runpy.run_path(str(ROOT / "scripts" / "metrics_dashboard"))["text"]() == shipped()


def test_each_name_and_label_of_the_dashboard_is_there() -> None:
    """Its queries name metrics of the catalogue, and their tags."""
    tags: dict[str, set[str]] = {}
    for family in catalogue():
        name = prometheus_name(family)
        for shown in (f"{name}_bucket", f"{name}_count", f"{name}_sum") if family.kind is MetricKind.HISTOGRAM else (name,):
            tags[shown] = {label(tag) for tag in family.tags} | OF_PROMETHEUS
    panels = json.loads(shipped())["panels"]
    targets = [target for panel in panels for target in panel.get("targets", ())]
    assert len(targets) > 30
    for target in targets:
        bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|by \([^)]*\)", "", target["expr"])
        (named,) = {word for word in re.findall(r"[a-z_][a-z0-9_]+", bare) if word not in FUNCTIONS}
        assert named in tags, target["expr"]
        grouped = {one.strip() for group in re.findall(r"by \(([^)]*)\)", target["expr"]) for one in group.split(",")}
        assert grouped <= tags[named], target["expr"]
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= (grouped or tags[named]), target["expr"]
