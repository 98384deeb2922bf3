"""The package is built on any machine: without a C compiler it goes without its kernel, and says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from ks_actors.kernel._native import SWITCHES

ROOT = Path(__file__).parents[3]


def build(out: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build a wheel of this tree, with any switches of the kernel that the tests have."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(out)]
    here = {name: value for name, value in os.environ.items() if name not in SWITCHES}
    # Its own tree and interpreter, nothing of others.
    return subprocess.run(  # noqa: S603 - a fixed command
        command, cwd=ROOT, env={**here, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("compiler", ["/bin/false", "/no/such/compiler"])
def test_without_a_working_compiler_the_wheel_has_no_kernel_and_the_build_says_so(tmp_path: Path, compiler: str) -> None:
    """One warning says that it will be slower, and how to mend that."""
    ended = build(tmp_path, CC=compiler)
    assert ended.returncode == 0, ended.stderr
    assert (ended.stdout + ended.stderr).count("built without its kernel in C, and will be slower") == 1
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in ZipFile(wheel).namelist() if name.endswith((".so", ".pyd"))]


def test_a_build_that_needs_the_kernel_fails_without_a_compiler(tmp_path: Path) -> None:
    """KS_ACTORS_WITH_KERNEL=1 makes it an error."""
    ended = build(tmp_path, CC="/bin/false", KS_ACTORS_WITH_KERNEL="1")
    assert ended.returncode != 0
    assert "/bin/false" in ended.stderr
    assert not list(tmp_path.glob("*.whl"))


@pytest.mark.parametrize(("value", "left_out"), [("1", True), ("0", False)])
def test_looking_ahead_is_left_out_by_a_switch_of_the_build(tmp_path: Path, value: str, left_out: bool) -> None:
    """KS_ACTORS_WITHOUT_AHEAD=1 is told to the compiler."""
    compiler, told = tmp_path / "cc", tmp_path / "told"
    compiler.write_text(f'#!/bin/sh\necho "$@" >>"{told}"\nexit 1\n')
    compiler.chmod(0o755)
    assert build(tmp_path, CC=str(compiler), KS_ACTORS_WITHOUT_AHEAD=value).returncode == 0
    assert ("KERNEL_WITHOUT_AHEAD" in told.read_text()) is left_out


def test_the_wheel_has_the_imported_files_and_nothing_else(tmp_path: Path) -> None:
    """The wheel holds both packages with their types and the license, and no sources of the kernel."""
    assert build(tmp_path, KS_ACTORS_WITHOUT_KERNEL="1").returncode == 0
    (wheel,) = tmp_path.glob("*.whl")
    names = ZipFile(wheel).namelist()
    assert {"actors/py.typed", "ks_actors/py.typed", "ks_actors/kernel/_kernel.pyi"} <= set(names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"actors", "ks_actors"}
    assert not [name for name in names if name.endswith((".c", ".h"))]
