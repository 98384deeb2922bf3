"""The CPU time that tests may take: each by itself, and each folder, in `tests/budget.toml`.

CPU time grows with the load of a machine, and with its age. So a run measures first how fast the machine is, again at its end, and allows for it;
`SLACK` is for the rest: caches and cores that are shared with other jobs, and lines that are
measured. Nothing here looks at wall time but to print it.
"""

from __future__ import annotations

import os
import time
import tomllib
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BUDGETS = Path(__file__).with_name("budget.toml")
# The most CPU seconds of a test without the mark `heavy`.
MOST_S = 3.0
# CPU seconds of `_work` on the machine that the budgets are from, when it does nothing else.
REFERENCE_S = 0.031
SLACK = 2.5
SHOWN = 15


def _work() -> None:
    table: dict[int, int] = {}
    for number in range(300_000):
        table[number & 1023] = table.get(number & 511, 0) + 1


def slowness() -> float:
    """Return how many times slower than the reference this machine is now, 1 at least."""
    times = []
    for _ in range(3):
        begun = time.process_time()
        _work()
        times.append(time.process_time() - begun)
    return max(1.0, sorted(times)[1] / REFERENCE_S)


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    return sum(os.times()[:4])


def over(spent: dict[str, float], limits: dict[str, float], factor: float) -> list[str]:
    """Return a line for each folder whose tests took more than its budget times the factor."""
    return [
        f"{folder} took {taken:.0f} CPU s, its budget is {limits[folder]:.0f} (x{factor:.1f} allowed)"
        for folder, taken in sorted(spent.items())
        if taken > limits[folder] * factor
    ]


def folder_of(path: str, folders: dict[str, float]) -> str:
    """Return the folder of a budget that a test belongs to: the longest one that is above it."""
    return max((folder for folder in folders if path == folder or path.startswith(f"{folder}/")), key=len, default="elsewhere")


class Budget:
    """Measures the tests of a run, and fails it when one of them or a folder takes more than it may."""

    def __init__(self, tier: str) -> None:
        self._limits: dict[str, float] = tomllib.loads(BUDGETS.read_text(encoding="utf-8"))[tier]
        self._slowness = slowness()
        self._begun = (cpu_seconds(), time.monotonic())
        self._tests: dict[str, float] = {}
        self._folders: dict[str, float] = defaultdict(float)
        self._too_long: list[str] = []
        self._faults: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        begun = cpu_seconds()
        result = yield
        self._folders[folder_of(item.nodeid.partition("::")[0], self._limits)] += cpu_seconds() - begun
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        begun = cpu_seconds()
        try:
            return (yield)
        finally:
            taken = cpu_seconds() - begun
            self._tests[item.nodeid] = taken
            if taken > MOST_S and item.get_closest_marker("heavy") is None:
                self._too_long.append(item.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        factor = SLACK * max(self._slowness, slowness())
        self._faults = [
            f"{test} took {self._tests[test]:.1f} CPU s: make it cheaper than {MOST_S:.0f}, or mark it `heavy` with the reason"
            for test in self._too_long
            if self._tests[test] > MOST_S * factor
        ]
        self._faults += over(self._folders, self._limits, factor)
        if self._faults and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        cpu, wall = cpu_seconds() - self._begun[0], time.monotonic() - self._begun[1]
        line = terminalreporter.write_line
        line(f"budget: {len(self._tests)} tests, {cpu:.0f} CPU s in {wall:.0f} s, on a machine {self._slowness:.1f} times slower than the reference")
        for folder, taken in sorted(self._folders.items(), key=lambda each: -each[1]):
            line(f"budget: {folder} {taken:.0f} of {self._limits[folder]:.0f} CPU s")
        for test, taken in sorted(self._tests.items(), key=lambda each: -each[1])[:SHOWN]:
            line(f"  {taken:6.1f} CPU s  {test}")
        for fault in self._faults:
            line(f"OVER BUDGET: {fault}", red=True)
