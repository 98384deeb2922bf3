"""Report of the latencies of counts and their CPU time: a table, and one JSON object."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rich.table import Table

from benchmarks._kafka_report import OURS, SHORT, THEIRS

COMMIT_MS = 100
USUAL_PARTITIONS = 4
LATE_MS = 50
LONGEST_MS = 500
JUDGED_RATE = 100
"""The lowest rate with a latency target; below it p99 is a single record."""
CPU_RATIOS = {500: 0.8, 5_000: 0.5, 20_000: 0.5}
IDLE_CPU = {4: 0.01, 60: 0.03}
HEADERS = ("", "partitions", "records/s", "", "p50 ms", "p99", "p99.9", "longest", "CPU of a core", "÷ Kafka Streams'")


class Cell(NamedTuple):
    """A rate (records/s) under a guarantee."""

    guarantee: str
    partitions: int
    rate: int

    @property
    def key(self) -> str:
        """The suffix of its names in the JSON."""
        return f"{SHORT[self.guarantee]}_{self.rate}{suffix(self.partitions)}"


class Seen(NamedTuple):
    """The result of a cell for a contender: latencies (ms), and CPU time as a share of one core."""

    p50: float
    p99: float
    p999: float
    max: float
    cpu: float
    lost: int


@dataclass
class Results:
    """All measurements, by contender."""

    cells: dict[Cell, dict[str, Seen]] = field(default_factory=dict[Cell, dict[str, Seen]])
    idle: dict[tuple[str, int], dict[str, float]] = field(default_factory=dict[tuple[str, int], dict[str, float]])
    """CPU time of an app without records as a share of one core, by guarantee and partitions."""


def suffix(partitions: int) -> str:
    """Return the suffix of figures with that number of partitions."""
    return "" if partitions == USUAL_PARTITIONS else f"_{partitions}"


def table(results: Results, title: str) -> Table:
    """Return the results as a table."""
    made = Table(*HEADERS, title=title, title_justify="left")
    for column in made.columns[1:]:
        column.justify = "right"
    for (guarantee, partitions), shares in results.idle.items():
        for contender, share in shares.items():
            made.add_row(SHORT[guarantee].upper(), str(partitions), "none", contender, "", "", "", "", f"{share:.1%}", _ratio(shares, contender))
        for cell, found in results.cells.items():
            if (cell.guarantee, cell.partitions) == (guarantee, partitions):
                for contender, seen in found.items():
                    cpu = {name: each.cpu for name, each in found.items()}
                    lost = f" ({seen.lost} lost)" if seen.lost else ""
                    latencies = [f"{value:,.0f}" for value in (seen.p50, seen.p99, seen.p999, seen.max)]
                    costs = (f"{seen.cpu:.1%}", _ratio(cpu, contender))
                    made.add_row(SHORT[guarantee].upper(), str(partitions), f"{cell.rate:,}", contender + lost, *latencies, *costs)
    return made


def _ratio(shares: dict[str, float], contender: str) -> str:
    return f"{shares[OURS] / shares[THEIRS]:.2f}" if contender == OURS and shares.get(THEIRS) else ""


def summary(results: Results) -> dict[str, float | list[str]]:
    """Return this library's figures by name, and the names of those that miss their target."""
    figures: dict[str, float | list[str]] = {}
    missed: list[str] = []

    def note(name: str, value: float, target: float | None) -> None:
        figures[name] = float(f"{value:.4g}")
        if target is not None and value > target:
            missed.append(name)

    for cell, found in results.cells.items():
        seen, theirs = found.get(OURS), found.get(THEIRS)
        if seen is None:
            continue
        judged = cell.rate >= JUDGED_RATE
        late = LATE_MS + (COMMIT_MS if SHORT[cell.guarantee] == "eos" else 0)
        for name, value, target in (("p50", seen.p50, None), ("p99", seen.p99, late), ("p999", seen.p999, None), ("max", seen.max, LONGEST_MS)):
            note(f"{name}_{cell.key}", value, target if judged else None)
        note(f"cpu_{cell.key}", seen.cpu, None)
        if seen.lost:
            note(f"lost_{cell.key}", seen.lost, 0)
        if theirs is not None and theirs.cpu:
            note(f"cpu_ratio_{cell.key}", seen.cpu / theirs.cpu, CPU_RATIOS.get(cell.rate))
    for partitions in dict.fromkeys(partitions for _, partitions in results.idle):
        shares = [found[OURS] for (_, count), found in results.idle.items() if count == partitions and OURS in found]
        if shares:
            note(f"idle_cpu{suffix(partitions)}", max(shares), IDLE_CPU.get(partitions))
    return {**figures, "missed": missed}
