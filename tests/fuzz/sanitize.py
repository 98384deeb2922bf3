"""Run the tests of the kernel with a kernel that has sanitizers: `make kernel-sanitize`, or `python -m tests.fuzz.sanitize [TEST...]`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.fuzz.build import ROOT, SANITIZED, NoSanitizer, build, environment

TESTS: Final = (
    "tests/fuzz/test_sections.py",
    "tests/ks_actors/kernel/test_kernel.py",
    "tests/ks_actors/kernel/test_kernel_misuse.py",
    "tests/ks_actors/records/test_partitioner.py",
    "tests/ks_actors/log/kafka/wire/test_record_reader.py",
    "tests/ks_actors/serdes/test_columns.py",
    "tests/ks_actors/state/key_value/test_counting.py",
    "tests/ks_actors/state/core/test_engine_rows.py",
    "tests/ks_actors/state/join_window/test_packed_segments.py",
    "tests/ks_actors/state/join_window/test_packed_work.py",
    "tests/ks_actors/state/key_value/test_restored_rows.py",
    "tests/ks_actors/state/window/test_window_kernel.py",
    "tests/ks_actors/state/core/test_written_changes.py",
)
"""Tests that give the kernel something to do, and need no broker."""


def run(tests: Sequence[str], built: Path) -> int:
    """Pass tests with a kernel; return the exit code."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.fuzz.preload", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=ROOT, env=environment(built), check=False).returncode  # noqa: S603 - its own interpreter


def main(arguments: Sequence[str]) -> int:
    """Build, and pass the tests; the exit code is pytest's, or 2 when nothing could be built."""
    with tempfile.TemporaryDirectory() as to:
        try:
            return run(arguments or TESTS, build(Path(to), *SANITIZED))
        except NoSanitizer as error:
            print(error, file=sys.stderr)  # noqa: T201 - a report for people
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
