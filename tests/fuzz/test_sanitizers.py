"""The kernel's tests, and some sessions, pass with a kernel that has sanitizers: `make kernel-sanitize` and `make kernel-fuzz` do it for longer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.__main__ import fuzz
from tests.fuzz.build import REPORTED, SANITIZED, NoSanitizer, build, environment
from tests.fuzz.sanitize import run

pytestmark = [pytest.mark.extended, pytest.mark.heavy("a build of the kernel, and tests with sanitizers")]


def missing() -> str | None:
    """Return the reason why there can be no sanitizer on this machine, None where there can be one."""
    try:
        environment(Path("kernel"))
    except NoSanitizer as error:
        return str(error)
    return None


needs_sanitizer = pytest.mark.skipif(missing() is not None and not os.environ.get("CI"), reason=f"no sanitizer: {missing()}")


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel with sanitizers; where it cannot be built, tests fail in CI."""
    return build(tmp_path_factory.mktemp("kernel"), *SANITIZED)


BEYOND = "import ctypes; ctypes.memmove(ctypes.create_string_buffer(8), bytes(4_000), 4_000)"


@needs_sanitizer
def test_a_process_ends_when_a_sanitizer_has_something_to_report(sanitized: Path) -> None:
    """With a code of its own, so that it is not taken for a test or a session that has failed."""
    ended = subprocess.run([sys.executable, "-c", BEYOND], env=environment(sanitized), capture_output=True, check=False)  # noqa: S603 - its own code
    assert ended.returncode == REPORTED
    assert b"heap-buffer-overflow" in ended.stderr


@needs_sanitizer
@pytest.mark.nightly
def test_sanitizers_report_nothing_in_tests(sanitized: Path) -> None:
    """Misuse, records as they are read and written, and much work on packed rows."""
    assert b"__asan_report_load" in sanitized.read_bytes()
    misuse, packed = "kernel/test_kernel_misuse.py", "state/join_window/test_packed_work.py"
    assert run([f"tests/ks_actors/{misuse}", f"tests/ks_actors/{packed}", "-k", "not any_size"], sanitized) == 0


@needs_sanitizer
def test_sanitizers_report_nothing_in_sessions(sanitized: Path, tmp_path: Path) -> None:
    """For some seconds, from one number on; `make nightly` begins at another one each time."""
    assert b"__asan_report_load" in sanitized.read_bytes()
    assert fuzz(3, 43, "", sanitized, tmp_path) == 0


@needs_sanitizer
def test_the_kernel_is_built_without_looking_at_dicts(tmp_path: Path) -> None:
    """The one file that knows how a dict lies in memory can be left out, and all that asks for it goes on."""
    built = build(tmp_path, "-O0", "-DKERNEL_WITHOUT_AHEAD")
    asked = [sys.executable, "-c", "import tests.fuzz.preload; from ks_actors.kernel import _kernel; print(_kernel.LOOKS_AHEAD)"]
    told = subprocess.run(asked, env=environment(built), capture_output=True, text=True, check=True)  # noqa: S603 - its own code
    assert told.stdout.split() == ["False"]
    assert fuzz(1, 1, "counts,stores,columns", built, tmp_path) == 0
