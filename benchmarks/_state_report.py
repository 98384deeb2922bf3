"""Report of the figures of state stores."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks._kafka_process import version_of

if TYPE_CHECKING:
    from pathlib import Path

BEGIN, END = "<!-- state:begin -->", "<!-- state:end -->"


class Report:
    """The measurements: figures by name, and rows of the table."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self._rows: list[tuple[str, str, str, str]] = []

    def add(self, what: str, figure: str, target: str = "", *, met: bool | None = None) -> None:
        """Add a row; `met` says whether the target is met."""
        self._rows.append((what, figure, target, "" if met is None else "met" if met else "missed"))

    def table(self, command: str) -> Table:
        """Return the rows, with the conditions."""
        made = Table("what", "figure", "target", "", title=f"{command}\n{conditions()}", title_justify="left")
        for row in self._rows:
            made.add_row(*row)
        return made

    def write_markdown(self, page: Path, command: str) -> None:
        """Write the table between the markers of `page`. Raises SystemExit if it has none."""
        text = page.read_text(encoding="utf-8")
        if BEGIN not in text or END not in text:
            raise SystemExit(f"{page} has no {BEGIN} … {END} to write between")
        before, after = text.split(BEGIN, 1)[0], text.split(END, 1)[1]
        lines = ["| what | figure | target |  |", "| :-- | --: | --: | :-- |", *(f"| {' | '.join(row)} |" for row in self._rows)]
        content = f"Measured by `{command}`: {conditions()}\n\n" + "\n".join(lines)
        page.write_text(f"{before}{BEGIN}\n\n{content}\n\n{END}{after}", encoding="utf-8")


def conditions() -> str:
    """Describe the machine and the versions."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("uvloop", "aiokafka", "rocksdict"))
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.python_implementation()} {platform.python_version()}, {packages}, Kafka Streams {version_of()}, "
        f"{platform.system()} ({platform.machine()}), {os.cpu_count()} cores; median (minimum-maximum) of rounds side by side; "
        f"load average at the end {', '.join(f'{load:.1f}' for load in os.getloadavg())}."
    )
