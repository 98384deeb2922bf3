"""The tests that `make check` runs for a change."""

from __future__ import annotations

import runpy
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "tests_of"))

RUNTIME = "tests/ks_actors/runtime"
# In the order in which they are to run when `runtime/fetching/_poller.py` has changed.
INPUT = [f"{RUNTIME}/fetching/{name}.py" for name in ("test_poller", "deep/test_poller_alone", "test_fetches", "deep/test_waits")]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a tree with tests."""
    others = [f"tests/{name}/test_one.py" for name in ("actors", "docs", "differential", "ks_actors")]
    for path in ("tests/house/test_house.py", f"{RUNTIME}/test_app.py", *others, *INPUT):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"from ks_actors.runtime.fetching{'' if 'poller' in path else '._other'} import Poller")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("ks_actors/runtime/fetching/_poller.py", INPUT),
        ("ks_actors/runtime/output/_collector.py", [f"{RUNTIME}/test_app.py"]),
        ("ks_actors/runtime/_new.py", [f"{RUNTIME}/test_app.py", *INPUT]),
        ("ks_actors/_errors.py", ["tests/ks_actors/test_one.py", f"{RUNTIME}/test_app.py", *INPUT]),
        ("actors/actor/_cell.py", ["tests/actors/test_one.py"]),
        ("docs/state.md", ["docs/state.md", "tests/docs/test_one.py"]),
        ("docs/design/004-kafka.md", ["docs/design/004-kafka.md", "tests/docs/test_one.py"]),
        ("README.md", ["README.md", "tests/docs/test_one.py"]),
        (f"{RUNTIME}/fetching/helpers.py", INPUT),
        ("tests/differential/oracle/Topologies.java", ["tests/differential/test_one.py"]),
        (f"{RUNTIME}/test_app.py", [f"{RUNTIME}/test_app.py"]),
        ("tests/conftest.py", []),
        ("CHANGELOG.md", []),
        ("Makefile", []),
    ],
)
def test_a_changed_file_has_its_tests_in_the_folder_of_its_name(path: str, tests: list[str], tree: Path) -> None:
    """They are in `tests/` and its own folder and below, or in the nearest folder above; a page is a test itself, by its blocks."""
    found = SCRIPT["tests_of"]([path], tree)
    assert sorted(found) == sorted(tests)


def test_changed_tests_come_first_and_then_those_that_name_a_changed_module(tree: Path) -> None:
    """They import the module or its folder; the others of the folder come after them."""
    assert SCRIPT["tests_of"](["ks_actors/runtime/fetching/_poller.py", "tests/house/test_house.py"], tree) == ["tests/house/test_house.py", *INPUT]


def test_each_folder_has_tests() -> None:
    """No folder of the packages is without tests: a new one gets its own, or there are some above it."""
    folders = {path.parent.relative_to(ROOT) for package in ("actors", "ks_actors") for path in (ROOT / package).rglob("*.py")}
    assert folders
    assert [folder for folder in folders if not SCRIPT["beside"](PurePosixPath(folder / "any.py"), ROOT)] == []
