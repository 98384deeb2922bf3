"""Imports of ks_actors that cannot work end by an error that names the reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run(directory: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a directory, as a script there would be."""
    script = directory / "job.py"
    script.write_text(code, encoding="utf-8")
    return subprocess.run(  # noqa: S603 - its own interpreter
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=directory, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", ["actors.py", "actors/__init__.py"])
@pytest.mark.parametrize("content", ["", "import ks_actors\n", "raise RuntimeError('never run')\n"])
def test_a_module_that_hides_the_package_actors_is_named(tmp_path: Path, name: str, content: str) -> None:
    """A file or folder of the user's by that name is named by the ImportError, with any content, and is not run."""
    hiding = tmp_path / name
    hiding.parent.mkdir(exist_ok=True)
    hiding.write_text(content, encoding="utf-8")
    ended = run(tmp_path, "import ks_actors\n")
    assert ended.returncode == 1
    assert f"ImportError: ks_actors needs its package `actors`, but Python finds {hiding} by that name; rename" in ended.stderr


def test_a_module_by_another_name_hides_nothing(tmp_path: Path) -> None:
    """The check is for that name alone."""
    (tmp_path / "actors_of_mine.py").write_text("", encoding="utf-8")
    assert run(tmp_path, "import ks_actors, actors_of_mine\n").returncode == 0
