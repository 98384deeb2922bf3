"""Report of the results: tables, and one JSON object."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from math import isnan
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks._measure import LOOPS
from benchmarks._plan import CONTENDERS, PLAN

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks._measure import Results, Spread
    from benchmarks._plan import Metric

BEGIN = "<!-- actors:begin -->"
END = "<!-- actors:end -->"
HEADERS = ["", *CONTENDERS.values(), "actors ÷ plain loop"]

TARGETS = {
    "tell_ratio": ("at most", 1.8),
    "ask_us": ("at most", 12.0),
    "ask_us_uvloop": ("at most", 7.0),
    "idle_bytes": ("at most", 5_000.0),
    "skynet_s": ("at most", 4.0),
    "vs_pykka": ("at least", 5.0),
    "vs_xoscar": ("at least", 5.0),
}


def tables(results: Results) -> list[Table]:
    """Return a table per event loop."""
    made = []
    for loop in LOOPS:
        table = Table(*HEADERS, title=f"{loop}: median (min-max)", title_justify="left")
        for column in table.columns[1:]:
            column.justify = "right"
        for row in _rows(results, loop):
            table.add_row(*row)
        made.append(table)
    return made


def summary(results: Results) -> dict[str, float | list[str]]:
    """Return the figures with targets, and the names of those that miss theirs."""

    def took(metric: str, loop: str = "asyncio") -> float:
        return _median(results.spread(metric, loop, "actors"))

    def ratio(contender: str, base: str, metric: str = "tell_64") -> float:
        return _median(results.ratio(metric, "asyncio", contender, base))

    figures: dict[str, float] = {
        "tell_ratio": ratio("actors", "floor"),
        "tell_ratio_async": ratio("actors", "floor", "tell_async"),
        "tell_us": took("tell_64"),
        "ask_us": took("ask"),
        "ask_us_uvloop": took("ask", "uvloop"),
        "idle_bytes": took("idle"),
        "skynet_s": took("skynet"),
        "skynet_told_s": took("skynet_told"),
        "vs_pykka": ratio("pykka", "actors"),
        # Compare with the cheaper of its two ways to send.
        "vs_xoscar": min(ratio("tell", "actors"), ratio("call", "actors")),
        "hop_us": took("hop_1"),
        "spawn_us": took("spawn"),
        "stop_us": took("stop"),
        "executor_us": took("executor"),
        "ingress_us": took("ingress"),
    }
    # With --only, metrics that were not measured have no figures: JSON has no nan.
    figures = {name: figure for name, figure in figures.items() if not isnan(figure)}
    missed = [name for name in TARGETS if name in figures and not _met(name, figures[name])]
    return {**{name: float(f"{figure:.4g}") for name, figure in figures.items()}, "missed": missed}


def targets(figures: dict[str, float | list[str]]) -> Table:
    """Return a table of targets and results."""
    table = Table("target", "bound", "measured", "", title="targets", title_justify="left")
    for name, (kind, bound) in TARGETS.items():
        figure = figures.get(name)
        if isinstance(figure, float):
            table.add_row(name, f"{kind} {bound:,g}", f"{figure:,g}", "met" if _met(name, figure) else "[bold red]missed")
    return table


def write_markdown(page: Path, results: Results, command: str) -> None:
    """Write the tables between the markers of `page`, with the conditions of the measurement."""
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{page} has no {BEGIN} … {END} to write between")
    before, after = text.split(BEGIN, 1)[0], text.split(END, 1)[1]
    page.write_text(f"{before}{BEGIN}\n\n{_markdown(results, command)}\n\n{END}{after}", encoding="utf-8")


def _markdown(results: Results, command: str) -> str:
    parts = [_conditions(command)]
    for loop in LOOPS:
        # Leave out columns without entries for this loop.
        used = [index for index in range(len(HEADERS)) if any(row[index] for row in _rows(results, loop))]
        lines = [_line([HEADERS[index] for index in used]), _line([":--" if index == 0 else "--:" for index in used])]
        lines += [_line([row[index] for index in used]) for row in _rows(results, loop)]
        parts.append(f"**{loop}**\n\n" + "\n".join(lines))
    figures = summary(results)
    lines = [_line(["target", "bound", "measured", ""]), _line([":--", "--:", "--:", ":--"])]
    for name, (kind, bound) in TARGETS.items():
        figure = figures.get(name)
        if isinstance(figure, float):
            lines.append(_line([f"`{name}`", f"{kind} {bound:,g}", f"{figure:,g}", "met" if _met(name, figure) else "missed"]))
    parts.append("**Targets**\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def _conditions(command: str) -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("uvloop", "pykka", "xoscar"))
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return (
        f"Measured on {datetime.now(UTC):%Y-%m-%d} by `{command}` with {python} and its own asyncio, {packages}, on {platform.system()} "
        f"({platform.machine()}) with {os.cpu_count()} cores.\nEntries: median (minimum-maximum)."
    )


def _rows(results: Results, loop: str) -> list[list[str]]:
    rows = [_row(results, loop, metric) for metric in PLAN]
    return [row for row in rows if any(row[1:])]


def _row(results: Results, loop: str, metric: Metric) -> list[str]:
    entries = [_show(results.spread(metric.key, loop, contender)) for contender in CONTENDERS]
    return [f"{metric.title} ({metric.unit})", *entries, _show(results.ratio(metric.key, loop, "actors", "floor"))]


def _show(spread: Spread | None) -> str:
    return "" if spread is None else f"{_number(spread.median)} ({_number(spread.low)}-{_number(spread.high)})"


def _number(value: float) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2  # noqa: PLR2004 - three digits are as many as can be trusted
    return f"{value:,.{digits}f}"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _median(spread: Spread | None) -> float:
    return float("nan") if spread is None else spread.median


def _met(name: str, figure: float) -> bool:
    kind, bound = TARGETS[name]
    return figure <= bound if kind == "at most" else figure >= bound
