"""Report of the results: a table, and one JSON object."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks._measure import Spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks._runtime_plan import Case, Target

MANY = 100
BEGIN, END = "<!-- runtime:begin -->", "<!-- runtime:end -->"
HEADERS = ("", "median (min-max)", "CPU µs per record", "runs", "target", "")


class Samples:
    """All figures, by case and name."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], list[float]] = {}

    def add(self, case: Case, figures: dict[str, float]) -> None:
        """Add the figures of a run."""
        for name, figure in figures.items():
            self._samples.setdefault((case.key, name), []).append(figure)

    def spread(self, case: Case, name: str) -> Spread | None:
        """Summarize a figure; None when there is none."""
        samples = self._samples.get((case.key, name))
        return Spread.of(samples) if samples else None

    def runs(self, case: Case) -> int:
        """Return the number of runs of a case."""
        return max((len(samples) for (key, _), samples in self._samples.items() if key == case.key), default=0)


def table(cases: Sequence[Case], samples: Samples, command: str) -> Table:
    """Return the results with the conditions of the measurement."""
    made = Table(*HEADERS, title=f"{command}\n{conditions()}", title_justify="left")
    for column in made.columns[1:5]:
        column.justify = "right"
    for *cells, judged in _rows(cases, samples):
        made.add_row(*cells, "[bold red]missed" if judged == "missed" else judged)
    return made


def _rows(cases: Sequence[Case], samples: Samples) -> Iterator[list[str]]:
    for case in cases:
        for name, title in case.figures.items():
            spread = samples.spread(case, name)
            if spread is None:
                continue
            target = case.targets.get(name)
            cpu = samples.spread(case, "cpu_us") if name == "per_s" else None
            yield [title, _show(spread), "" if cpu is None else _show(cpu), str(samples.runs(case)), *_judged(target, spread)]


def summary(cases: Sequence[Case], samples: Samples) -> dict[str, float | list[str]]:
    """Return the named figures, and the names of those that miss their target."""
    figures: dict[str, float | list[str]] = {}
    missed: list[str] = []
    for case in cases:
        for name, target in case.targets.items():
            spread = samples.spread(case, name)
            if spread is not None:
                figures[target.name] = float(f"{spread.median:.4g}")
                if not target.met(spread.median):
                    missed.append(target.name)
        for name in ("per_s", "cpu_us"):
            spread = samples.spread(case, name)
            if spread is not None and not (name == "per_s" and name in case.targets):
                figures[f"{case.key}_{name}"] = float(f"{spread.median:.4g}")
    return {**figures, "missed": missed}


def write_markdown(page: Path, cases: Sequence[Case], samples: Samples, command: str) -> None:
    """Write the table between the markers of a page."""
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{page} has no {BEGIN} and {END} to write between")
    lines = [f"`{command}`: {conditions()}.", "", _line(HEADERS), _line((":--", "--:", "--:", "--:", "--:", ":--"))]
    lines += [_line(row) for row in _rows(cases, samples)]
    before, _, rest = text.partition(BEGIN)
    behind = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{behind}", encoding="utf-8")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def conditions() -> str:
    """Describe the machine and the versions."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    packages = ", ".join(f"{name} {_version(name)}" for name in ("uvloop", "msgspec", "rocksdict"))
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {python}, {packages}, {platform.system()} ({platform.machine()}), {os.cpu_count()} cores, "
        f"load average at the end {load}; each run in a process of its own"
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(none)"


def _judged(target: Target | None, spread: Spread) -> tuple[str, str]:
    if target is None:
        return "", ""
    return f"{'at most' if target.at_most else 'at least'} {target.bound:,g}", "met" if target.met(spread.median) else "missed"


def _show(spread: Spread) -> str:
    return f"{_number(spread.median)} ({_number(spread.low)}-{_number(spread.high)})"


def _number(value: float) -> str:
    digits = 0 if value >= MANY else 2
    return f"{value:,.{digits}f}"
