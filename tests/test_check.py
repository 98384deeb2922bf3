"""The tests that `make check` runs for a change."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).parent.parent
SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "tests_of"))
folders_of: Callable[[Iterable[str]], list[str]] = SCRIPT["folders_of"]
near: Callable[[Iterable[str]], list[str]] = SCRIPT["near"]
changed_tests: Callable[[Iterable[str]], list[str]] = SCRIPT["changed_tests"]


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("actors/actor/_cell.py", ["tests/actors"]),
        ("actors/testing/_kit.py", ["tests/actors"]),
        ("ks_actors/state/core/_undo_log.py", ["tests/state"]),
        ("ks_actors/runtime/input/_poller.py", ["tests/runtime"]),
        ("ks_actors/app/_app.py", ["tests/runtime"]),
        ("ks_actors/kernel/src/windows.c", ["tests/ks_actors"]),
        ("ks_actors/task/_task.py", ["tests/caching", "tests/commits", "tests/processors"]),
        ("ks_actors/_errors.py", ["tests/ks_actors"]),
        ("examples/flights/pipeline.py", ["tests/examples"]),
        ("docs/state.md", ["docs/state.md", "tests/docs"]),
        ("docs/design/004-kafka.md", ["docs/design/004-kafka.md", "tests/docs"]),
        ("README.md", ["README.md", "tests/docs"]),
        ("tests/runtime/helpers.py", ["tests/runtime"]),
        ("tests/differential/oracle/Topologies.java", ["tests/differential"]),
        ("tests/runtime/test_app.py", []),
        ("tests/conftest.py", []),
        ("CHANGELOG.md", []),
        ("Makefile", []),
    ],
)
def test_a_changed_file_has_its_tests_in_the_folder_of_its_name(path: str, tests: list[str]) -> None:
    """A folder of `ks_actors` has the tests in the folder of its name, or in those that the script names; a page is a test itself, by its blocks."""
    assert folders_of([path]) == tests


def test_a_changed_test_file_runs_by_itself() -> None:
    """Without the others of its folder."""
    changed = ["tests/runtime/test_app.py", "tests/test_house.py", "tests/runtime/helpers.py", "ks_actors/app/_app.py", "docs/test_plan.md"]
    assert changed_tests(changed) == ["tests/runtime/test_app.py", "tests/test_house.py"]


def test_test_files_that_name_a_changed_module_come_first() -> None:
    """They import the module or its folder; the others of the folder come after them."""
    found = near(["ks_actors/runtime/output/_collector.py", "CHANGELOG.md"])
    assert "tests/runtime/test_instances.py" in found
    assert "tests/runtime/test_lifecycle.py" not in found
    assert all(path.startswith("tests/runtime/test_") for path in found)


def test_each_folder_has_tests() -> None:
    """No folder of the packages is without a folder of tests: a new one gets its own, or a line in the script."""
    sources = [str(path.relative_to(ROOT)) for package in ("actors", "ks_actors") for path in (ROOT / package).rglob("*.py")]
    assert sources
    for path in sources:
        assert folders_of([path]), path
        assert all((ROOT / tests).is_dir() for tests in folders_of([path])), path


def test_no_test_begins_after_its_time(pytester: pytest.Pytester) -> None:
    """With `--within`, tests that are left when the seconds are over are counted, and neither run nor fail."""
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text())
    pytester.makepyfile("def test_one(): assert False\ndef test_two(): assert False")
    over = pytester.runpytest("--within", "0.000001")
    over.assert_outcomes()
    over.stdout.fnmatch_lines(["*2 tests did not begin within 1e-06 s: `make test` runs them*"])
    assert pytester.runpytest("--within", "1000").ret == 1
