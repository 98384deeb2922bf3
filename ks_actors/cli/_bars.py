"""Progress of restoring, standbys and exports: bars on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, final

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ks_actors._counted import counted
from ks_actors._errors import LogError
from ks_actors.records import TopicPartition
from ks_actors.runtime.shared import RestoreListener, StandbyUpdateListener, SuspendReason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from types import TracebackType

    from rich.console import Console
    from rich.progress import TaskID

    from ks_actors.batch import ExportProgress
    from ks_actors.records import TaskId

    Ends = Callable[[TopicPartition], Awaitable[int]]
    """Returns the end offset of a changelog partition."""


@final
class Restoring(RestoreListener):
    """A listener that shows the progress of each restoring store.

    `ends` asks the log for a partition's end; until the answer, a bar has no end.
    """

    def __init__(self, show: Bars, ends: Ends) -> None:
        self._show = show
        self._ends = ends
        self._asking: set[asyncio.Task[None]] = set()

    def on_restore_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
        """Begin a bar."""
        self._show.begin(partition, f"restoring {_name(store, partition)}", start or 0)
        asking = asyncio.ensure_future(self._ask(partition))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)

    async def _ask(self, partition: TopicPartition) -> None:
        # The bar then has no end, and restoring itself reports the error.
        with suppress(LogError):
            self._show.ends(partition, await self._ends(partition))

    def on_batch_restored(
        self,
        partition: TopicPartition,
        store: str,  # noqa: ARG002 - part of the contract
        end: int,
        count: int,
    ) -> None:
        """Advance the bar."""
        self._show.move(partition, end, count)

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        """End the bar; print the number of restored records."""
        self._show.end(partition, f"restored {_name(store, partition)}: {counted(total, 'record')}")

    def on_restore_suspended(self, partition: TopicPartition, store: str, total: int) -> None:
        """End the bar; print that restoring stopped early."""
        self._show.end(
            partition,
            f"stopped restoring {_name(store, partition)}, after {counted(total, 'record')}",
        )


@final
class Following(StandbyUpdateListener):
    """A listener that shows the progress of each standby's store."""

    def __init__(self, show: Bars) -> None:
        self._show = show

    def on_update_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
        """Begin a bar."""
        self._show.begin(partition, f"standby {_name(store, partition)}", start or 0)

    def on_batch_loaded(
        self,
        partition: TopicPartition,
        store: str,  # noqa: ARG002 - the listener's
        task: TaskId,  # noqa: ARG002 - likewise
        end: int,
        count: int,
        current_end: int,
    ) -> None:
        """Advance the bar."""
        self._show.ends(partition, current_end)
        self._show.move(partition, end, count)

    def on_update_suspended(
        self,
        partition: TopicPartition,
        store: str,
        offset: int,
        current_end: int,
        reason: SuspendReason,
    ) -> None:
        """End the bar; print the reason."""
        self._show.end(
            partition,
            f"standby {_name(store, partition)}: {reason.value} at {offset:,} of {current_end:,}",
        )


@final
class Exporting:
    """Show the progress of each exported partition."""

    def __init__(self, show: Bars) -> None:
        self._show = show

    def __call__(self, progress: ExportProgress) -> None:
        """Begin, advance or end the bar."""
        partition = TopicPartition(progress.name, progress.partition)
        if progress.done:
            self._show.end(partition, None)
        elif partition not in self._show.known:
            self._show.begin(
                partition, f"exporting {_name(progress.name, partition)}", progress.start
            )
            self._show.ends(partition, progress.end)
        else:
            moved = progress.records - self._show.known[partition].records
            self._show.move(partition, progress.offset, moved)


@final
class Bars:
    """One bar per changelog partition, by offsets, during the `with` block.

    If `console` is no terminal, print at most one line per partition every `seconds`.
    """

    def __init__(
        self, console: Console, seconds: float = 5.0, clock: Callable[[], float] = monotonic
    ) -> None:
        self._console = console
        self._seconds = seconds
        self._clock = clock
        self._live: Progress | None = None
        self._bars: dict[TopicPartition, _Bar] = {}

    @property
    def known(self) -> Mapping[TopicPartition, _Bar]:
        """The current bars."""
        return self._bars

    def __enter__(self) -> Bars:
        if self._console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[records]:,} records"),
                TimeRemainingColumn(),
            )
            self._live = Progress(*columns, console=self._console, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, partition: TopicPartition, title: str, start: int) -> None:
        """Begin a bar at an offset; it replaces a bar of the same partition."""
        self._drop(partition)
        shown = None if self._live is None else self._live.add_task(title, total=None, records=0)
        self._bars[partition] = _Bar(title, start, shown)

    def ends(self, partition: TopicPartition, end: int) -> None:
        """Set the end offset of a bar."""
        bar = self._bars.get(partition)
        if bar is not None:
            bar.end = end
            if self._live is not None and bar.shown is not None:
                self._live.update(bar.shown, total=max(1, end - bar.start))

    def move(self, partition: TopicPartition, offset: int, count: int) -> None:
        """Set a bar's offset, and add `count` to its records."""
        bar = self._bars.get(partition)
        if bar is None:
            return
        bar.offset, bar.records = offset, bar.records + count
        if self._live is not None and bar.shown is not None:
            self._live.update(bar.shown, completed=offset - bar.start, records=bar.records)
        elif self._clock() - bar.reported_at >= self._seconds:
            bar.reported_at = self._clock()
            of = "" if bar.end is None else f" of {bar.end:,}"
            self._print(f"{bar.title}: {counted(bar.records, 'record')}, at {offset:,}{of}")

    def end(self, partition: TopicPartition, said: str | None) -> None:
        """Remove a bar and print a final line, if any."""
        self._drop(partition)
        if said is not None:
            self._print(said)

    def _drop(self, partition: TopicPartition) -> None:
        bar = self._bars.pop(partition, None)
        if bar is not None and self._live is not None and bar.shown is not None:
            self._live.remove_task(bar.shown)

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class _Bar:
    __slots__ = ("end", "offset", "records", "reported_at", "shown", "start", "title")

    def __init__(self, title: str, start: int, shown: TaskID | None) -> None:
        self.title: str = title
        self.start: int = start
        self.offset: int = start
        self.end: int | None = None
        self.records: int = 0
        self.shown: TaskID | None = shown
        self.reported_at: float = -inf


def _name(store: str, partition: TopicPartition) -> str:
    return f"{store}[{partition.partition}]"
