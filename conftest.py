"""Run the Python blocks of README.md and of docs/ as tests: the blocks of a page share their names, and run in the order of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sybil import Sybil
from sybil.integration.pytest import SybilItem
from sybil.parsers.markdown import PythonCodeBlockParser

if TYPE_CHECKING:
    import pytest

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()], patterns=["README.md", "docs/*.md", "docs/design/*.md", "docs/runbooks/*.md", "docs/skill/*.md"]
).pytest()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Undo what pytest-randomly does to blocks, of which each builds on those before it."""
    blocks = iter(sorted((item for item in items if isinstance(item, SybilItem)), key=lambda item: (item.path, item.example.start)))
    items[:] = [next(blocks) if isinstance(item, SybilItem) else item for item in items]
