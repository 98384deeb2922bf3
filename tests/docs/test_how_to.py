"""The recipes: each has the same parts, is in the table of tasks, and its files and rules are ones that tools read."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from ks_actors.config._settings import SETTINGS
from ks_actors.metrics import MetricKind
from ks_actors.metrics.exporters import prometheus_name
from ks_actors.metrics.exporters._names import label
from ks_actors.metrics.families import catalogue

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted((DOCS / "how-to").glob("*.md"))
VERBS = {
    *("accept", "alert", "backfill", "change", "close", "count", "deploy", "drop", "embed", "enrich", "find", "go", "inspect", "join", "keep"),
    *("log", "pause", "query", "redact", "rename", "reprocess", "reset", "retry", "run", "scale", "secure", "set", "shut", "size", "skip", "stop"),
    *("take", "test", "trace", "upgrade", "use", "write"),
}
OF_THE_BUILD = {"KS_ACTORS_WITHOUT_AHEAD", "KS_ACTORS_WITHOUT_KERNEL", "KS_ACTORS_WITH_KERNEL"}
LABELS_OF_PROMETHEUS = {"instance", "job", "le", "value"}
MOST_WORDS = 18
MOST_COLUMNS = 80


def fences(page: Path, *languages: str) -> list[str]:
    """Return the code of a page's blocks in these languages."""
    return [
        code
        for language, code in re.findall(r"^```(\w+)[^\n]*\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        if language in languages
    ]


def recipes(page: Path) -> dict[str, str]:
    """Return the text of each recipe of a page, by its heading."""
    text = re.sub(r"^```.*?^```$", lambda code: code[0].replace("\n## ", "\n #"), page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))


def test_there_are_recipes_enough() -> None:
    """The section has 25 recipes at least, each with a name of its own."""
    names = [name for page in PAGES for name in recipes(page)]
    assert len(set(names)) == len(names) >= 25


def test_each_recipe_has_its_parts() -> None:
    """A recipe begins with a verb, and has a problem, code or commands, what one sees, pitfalls, and links onwards."""
    parts = (r"\A\n[^`|*\n]", r"^```(?:python|sh|yaml)", r"^\*\*You see\*\* ", r"^\*\*Pitfalls\*\*\n\n- ", r"^\*\*More:\*\* \[")
    found = {name: text for page in PAGES for name, text in recipes(page).items()}
    assert [name for name in found if name.split()[0].lower() not in VERBS] == []
    assert [(name, part) for name, text in found.items() for part in parts if not re.search(part, text, re.MULTILINE)] == []


def test_each_recipe_is_in_the_table_of_tasks() -> None:
    """The table 'when you need … read …' leads to each recipe by its heading."""
    linked = set(re.findall(r"\[([^\]]+)\]\(how-to/([\w-]+\.md)#", (DOCS / "needs.md").read_text(encoding="utf-8")))
    assert {(name, page.name) for page in PAGES for name in recipes(page)} == linked


def test_recipes_are_short_sentences_and_narrow_code() -> None:
    """Code has 80 columns at most, and the mean sentence of a page 18 words."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        code = re.findall(r"^```.*?^```$", text, re.MULTILINE | re.DOTALL)
        assert [line for block in code for line in block.splitlines() if len(line) > MOST_COLUMNS] == [], page.name
        prose = re.sub(r"^```.*?^```$|^\|[^\n]*$|^#[^\n]*$", "\n\n", text, flags=re.MULTILINE | re.DOTALL)
        prose = re.sub(r"\[([^\]]*)\]\([^)]*\)|`([^`]*)`", lambda found: (found[1] or "x").replace(".", ""), prose)
        sentences = [each.split() for each in re.split(r"(?<=[.!?:])\s+|\n\n|\n- ", prose) if len(each.split()) > 2]
        assert sum(map(len, sentences)) / len(sentences) <= MOST_WORDS, page.name


def test_files_on_pages_can_be_read() -> None:
    """YAML, TOML and JSON on a page are YAML, TOML and JSON."""
    for page in sorted(DOCS.rglob("*.md")):
        for text in fences(page, "yaml", "yml"):
            assert [each for each in yaml.safe_load_all(text) if each is None] == [], page.name
        for text in fences(page, "toml"):
            tomllib.loads(text)
        for text in fences(page, "json"):
            json.loads(text)


def test_rules_for_prometheus_name_metrics_that_exist() -> None:
    """Each alert has an expression of metrics that are exported, grouped and shown by labels that they have."""
    labels: dict[str, set[str]] = {}
    for family in catalogue():
        name = prometheus_name(family)
        for shown in (f"{name}_bucket", f"{name}_count", f"{name}_sum") if family.kind is MetricKind.HISTOGRAM else (name,):
            labels[shown] = {label(tag) for tag in family.tags} | LABELS_OF_PROMETHEUS
    found = [yaml.safe_load(text) for page in DOCS.rglob("*.md") for text in fences(page, "yaml") if "expr:" in text]
    rules = [rule for each in found for group in each["groups"] for rule in group["rules"]]
    assert len(rules) >= 5
    for rule in rules:
        expression = rule["expr"]
        assert expression.count("(") == expression.count(")")
        named = set(re.findall(r"\b(?:kafka|ks_actors)_\w+", expression))
        assert named
        assert named <= labels.keys(), rule["alert"]
        common = set.intersection(*(labels[name] for name in named))
        grouped = {one.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for one in group.split(",")}
        filtered = set(re.findall(r"[{,]\s*(\w+)\s*[=!]", expression))
        told = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        assert grouped | filtered <= common, rule["alert"]
        assert told <= (grouped or common), rule["alert"]


def test_variables_named_on_pages_are_settings() -> None:
    """A variable of the environment that a page names is that of a setting, or one of the build."""
    known = {f"KS_ACTORS_{name.upper()}" for name in SETTINGS} | OF_THE_BUILD
    named = {name for page in DOCS.rglob("*.md") for name in re.findall(r"\bKS_ACTORS_\w+", page.read_text(encoding="utf-8"))}
    assert named - known == set()


def test_metrics_named_in_recipes_exist() -> None:
    """Names of metrics in the text of a recipe are those of Prometheus."""
    known = {prometheus_name(family) for family in catalogue()}
    named = {name for page in PAGES for name in re.findall(r"`((?:kafka_|ks_actors_)[a-z0-9_]+)`", page.read_text(encoding="utf-8"))}
    assert {name for name in named if name.count("_") > 2} - known == set()
