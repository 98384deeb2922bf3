"""Report of the benchmark on Kafka: a table, a section for the docs, and one JSON object."""

from __future__ import annotations

import os
import platform
from collections import defaultdict
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

from rich.table import Table

from benchmarks._kafka_process import FLINK as FLINK_SOURCES
from benchmarks._kafka_process import version_of
from benchmarks._measure import Spread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks._kafka_process import Run

BEGIN = "<!-- kafka:begin -->"
END = "<!-- kafka:end -->"
OURS, THEIRS, TRANSACTIONAL, FLINK = "ks-actors", "Kafka Streams", "Kafka Streams, transactional stores", "Flink SQL"
BESIDE = {TRANSACTIONAL: "transactional", FLINK: "flink"}
"""Contenders that no target names, by their word in the results."""
SHORT = {"at_least_once": "alos", "exactly_once_v2": "eos"}
DISTURBED = 0.1
TARGETS = {
    "map": {"alos": 2.0, "eos": 2.0},
    "count": {"alos": 2.0, "eos": 3.0},
    "wordcount": {"alos": 1.2, "eos": 1.2},
    "window": {"alos": 3.0, "eos": 3.0},
    "join": {"alos": 2.0, "eos": 2.0},
    "tablejoin": {"alos": 2.0, "eos": 2.0},
}
"""The target speed of each application, as a multiple of Kafka Streams'."""
HEADERS = (
    "",
    "",
    "records/s, steady",
    "records/s, to the last commit",
    "CPU µs per record",
    "memory MB",
    "to the first record s",
    "times as fast",
    "target",
)


class Cell(NamedTuple):
    """An application under a guarantee."""

    app: str
    guarantee: str

    @property
    def key(self) -> str:
        """The cell's name in the JSON."""
        return f"{self.app}_{SHORT[self.guarantee]}"

    @property
    def target(self) -> float:
        """The target speed as a multiple of Kafka Streams'."""
        return TARGETS[self.app][SHORT[self.guarantee]]


class Results:
    """All runs, by application, guarantee and contender.

    Runs with the same index are neighbors in time.
    """

    def __init__(self) -> None:
        self._runs: defaultdict[tuple[Cell, str], list[Run]] = defaultdict(list)

    def add(self, cell: Cell, contender: str, run: Run) -> None:
        """Add a run."""
        self._runs[cell, contender].append(run)

    @property
    def cells(self) -> list[Cell]:
        """The measured cells, in order."""
        return list(dict.fromkeys(cell for cell, _ in self._runs))

    def contenders(self, cell: Cell) -> list[str]:
        """Return the measured contenders."""
        return [contender for contender in (OURS, THEIRS, TRANSACTIONAL, FLINK) if (cell, contender) in self._runs]

    def spread(self, cell: Cell, contender: str, figure: Callable[[Run], float]) -> Spread:
        """Summarize a figure."""
        return Spread.of([figure(run) for run in self._runs[cell, contender]])

    def ratio(self, cell: Cell, figure: Callable[[Run], float], other: str = THEIRS) -> Spread | None:
        """Summarize our figure as a multiple of the other's, run by run; None without the other."""
        mine, theirs = self._runs.get((cell, OURS)), self._runs.get((cell, other))
        if not mine or not theirs:
            return None
        return Spread.of([figure(one) / figure(their) for one, their in zip(mine, theirs, strict=True) if figure(their)])

    def disturbed(self) -> tuple[int, int]:
        """Return the number of disturbed runs, and of all runs.

        In a disturbed run, other processes used a tenth of the machine or more.
        """
        runs = [run for found in self._runs.values() for run in found]
        return sum(run.foreign_share >= DISTURBED for run in runs), len(runs)


def steady(run: Run) -> float:
    """Return the rate in the second half of the work, records/s."""
    return float(run.said["steady_per_s"] or run.said["processed_per_s"])


def overall(run: Run) -> float:
    """Return the rate from the first record to the end, committed and closed, records/s."""
    return float(run.said["records_per_s"])


def cpu(run: Run) -> float:
    """Return the CPU time of the process per record, from launch to end, µs."""
    return run.cpu_s / float(run.said["records"]) * 1e6


def memory(run: Run) -> float:
    """Return the peak memory, MB."""
    return max(run.rss_mb, float(run.said["rss_mb"]))


def first(run: Run) -> float:
    """Return the time from the launch of the process to the first record, s."""
    said = run.said
    return float(said["first_s"]) + float(said["launch_to_start_s"] if "launch_to_start_s" in said else said["jvm_to_start_s"])


def table(results: Results, command: str) -> Table:
    """Return the results with the conditions of the measurement."""
    made = Table(*HEADERS, title=f"{command}\n{conditions(results)}", title_justify="left")
    for column in made.columns[2:]:
        column.justify = "right"
    for row in _rows(results):
        made.add_row(*row)
    return made


def summary(results: Results) -> dict[str, float | list[str]]:
    """Return ratios by name, and the names of those that miss their target."""
    figures: dict[str, float | list[str]] = {}
    missed: list[str] = []
    memories: list[float] = []
    for cell in results.cells:
        for name, figure in (("ratio", steady), ("total_ratio", overall), ("cpu_ratio", cpu)):
            found = results.ratio(cell, figure)
            if found is not None:
                figures[f"{cell.key}_{name}"] = _short(found.median)
            for other, word in BESIDE.items():
                found = results.ratio(cell, figure, other)
                if found is not None:
                    figures[f"{cell.key}_{word}_{name}"] = _short(found.median)
        fast = results.ratio(cell, steady)
        if fast is not None and fast.median < cell.target:
            missed.append(f"{cell.key}_ratio")
        memories += [found.median] if (found := results.ratio(cell, memory)) is not None else []
        if OURS in results.contenders(cell):
            figures[f"{cell.key}_per_s"] = _short(results.spread(cell, OURS, steady).median)
    if memories:
        figures["rss_ratio"] = _short(max(memories))
    starts = [results.spread(cell, OURS, first).median for cell in results.cells if OURS in results.contenders(cell)]
    if starts:
        figures["startup_s"] = _short(Spread.of(starts).median)
    return {**figures, "missed": missed}


def write_markdown(page: Path, results: Results, command: str) -> None:
    """Write the table between the markers of `page`, with the conditions."""
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{page} has no {BEGIN} … {END} to write between")
    before, after = text.split(BEGIN, 1)[0], text.split(END, 1)[1]
    lines = [_line(HEADERS), _line([":--", ":--", *["--:"] * (len(HEADERS) - 2)]), *map(_line, _rows(results))]
    content = f"Measured by `{command}`: {conditions(results)}\n\n" + "\n".join(lines)
    page.write_text(f"{before}{BEGIN}\n\n{content}\n\n{END}{after}", encoding="utf-8")


def conditions(results: Results) -> str:
    """Describe the machine, the versions and the disturbances."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("uvloop", "aiokafka", "msgspec", "rocksdict"))
    disturbed, runs = results.disturbed()
    flink = f", Flink {version_of(FLINK_SOURCES)}" if any(FLINK in results.contenders(cell) for cell in results.cells) else ""
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.python_implementation()} {platform.python_version()}, {packages}, "
        f"Kafka Streams {version_of()}{flink}, "
        f"{platform.system()} ({platform.machine()}), {os.cpu_count()} cores shared with one broker; median (minimum-maximum) of runs side by side; "
        f"in {disturbed} of {runs} runs something else took a tenth of the machine or more."
    )


def _rows(results: Results) -> list[list[str]]:
    rows = []
    for cell in results.cells:
        for contender in results.contenders(cell):
            figures = [_show(results.spread(cell, contender, figure)) for figure in (steady, overall, cpu, memory, first)]
            fast = results.ratio(cell, steady) if contender == OURS else None
            judged = ("", "") if fast is None else (_show(fast), f"{cell.target:g} {'met' if fast.median >= cell.target else 'missed'}")
            for other, word in BESIDE.items():
                beside = results.ratio(cell, steady, other) if contender == OURS else None
                if beside is not None:
                    judged = (f"{judged[0]}; {word} {_show(beside)}".lstrip("; "), judged[1])
            rows.append([f"{cell.app}, {SHORT[cell.guarantee].upper()}", contender, *figures, *judged])
    return rows


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _show(spread: Spread) -> str:
    low, middle, high = (f"{value:,.0f}" if spread.median >= 100 else f"{value:,.2f}" for value in spread)  # noqa: PLR2004 - digits
    return f"{middle} ({low}-{high})"


def _short(value: float) -> float:
    return float(f"{value:.4g}")
