"""The page with Kafka Streams' DSL has all of its names, and names here that exist.

kafka_streams_dsl.txt has the public methods of the DSL's classes, from the class files of kafka-streams-4.4.0.jar: without deprecated ones, those
that every object has, and callbacks of the library.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import ks_actors
from ks_actors import serdes

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "dsl-coverage.md").read_text(encoding="utf-8")
THERE = {kind: set(names.split()) for kind, _, names in (line.partition(":") for line in (HERE / "kafka_streams_dsl.txt").read_text().splitlines())}
SECTIONS: dict[str, str] = dict(re.findall(r"^## ([\w.]+)\n\n(Here: .*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
NAME = re.compile(r"(?P<path>[\w.]+)(?:\((?P<argument>\w+)\))?")
ONLY_HERE = re.findall(r"`((?:Stream\.|CalendarWindows)\w*)`", PAGE.partition("## Only here")[2])


def found(name: str) -> Any:
    """Return the object with a name, such as `Table.join`, or `Grouped(key)` with an argument that must be there."""
    match = NAME.fullmatch(name)
    assert match, name
    first, *rest = match["path"].split(".")
    value: Any = serdes if first == "serdes" else getattr(ks_actors, first)
    for part in rest:
        value = getattr(value, part)
    if match["argument"]:
        assert match["argument"] in inspect.signature(value).parameters, name
    return value


def test_each_class_of_the_dsl_has_its_section() -> None:
    """In the page's order."""
    assert list(SECTIONS) == list(THERE)


@pytest.mark.parametrize("kind", THERE)
def test_each_name_of_the_dsl_is_there(kind: str) -> None:
    """Every public method of a class has its line, and the name beside it exists, or the line says why there is none."""
    (here,) = re.findall(r"^Here: `(.*)`$", SECTIONS[kind], re.MULTILINE)
    assert found(here)
    lines = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", SECTIONS[kind], re.MULTILINE))
    assert set(lines) == THERE[kind]
    for name in lines.values():
        if not name.startswith("— "):
            assert found(name.strip("`")) is not None


@pytest.mark.parametrize("name", ONLY_HERE)
def test_each_name_that_is_only_here_exists(name: str) -> None:
    """As the page says."""
    assert found(name)
