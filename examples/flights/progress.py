"""Progress of the job: a live bar on a terminal, occasional lines elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console


class Progress(Protocol):
    """Callback with the title of a step, its progress and its total."""

    def __call__(self, title: str, done: int, total: int, /) -> None: ...


@contextmanager
def progress(console: Console, seconds: float = 1.0) -> Iterator[Progress]:
    """Show progress on `console` until the block ends.

    Lines come at most every `seconds`, and at the end of each step.
    """
    if not console.is_terminal:
        yield lines(console, seconds)
        return
    columns = TextColumn("{task.description:<20}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]:>9,.0f}/s"), TimeElapsedColumn()
    with Bars(*columns, console=console) as bars:
        yield live(bars)


def live(bars: Bars) -> Progress:
    """Return a callback that moves one bar per step."""
    tasks = {}

    def show(title: str, done: int, total: int) -> None:
        if title not in tasks:
            tasks[title] = bars.add_task(title, total=total, rate=0.0), monotonic()
        task, began = tasks[title]
        bars.update(task, completed=done, rate=done / max(monotonic() - began, 0.001))

    return show


def lines(console: Console, seconds: float) -> Progress:
    """Return a callback that prints a line per step from time to time."""
    printed: dict[str, tuple[float, int]] = {}

    def show(title: str, done: int, total: int) -> None:
        now = monotonic()
        when, what = printed.get(title, (-inf, -1))
        if done != what and (done == total or now - when >= seconds):
            printed[title] = now, done
            console.print(f"{title}: {done:,} of {total:,}", highlight=False)

    return show
