"""Progress as the command line shows it."""

from __future__ import annotations

import io

from rich.console import Console

from ks_actors import TaskId
from ks_actors._errors import LogTimeout
from ks_actors.batch import ExportProgress
from ks_actors.cli._bars import Bars, Exporting, Following, Restoring
from ks_actors.log import TopicPartition
from ks_actors.runtime import SuspendReason

CHANGELOG = TopicPartition("app-counts-changelog", 1)


def bars(seconds: float = 0.0, *, terminal: bool = False) -> tuple[Bars, io.StringIO]:
    file = io.StringIO()
    return Bars(Console(file=file, force_terminal=terminal, width=120), seconds), file


async def test_bars_go_from_the_start_of_restoring_to_the_end_of_the_changelog() -> None:
    """A bar's end comes from the log; one that is done is taken away, and a line stays."""
    show, file = bars(terminal=True)

    async def ends(partition: TopicPartition) -> int:
        return 500

    with show:
        restoring = Restoring(show, ends)
        restoring.on_restore_start(CHANGELOG, "counts", 100)
        for asking in list(restoring._asking):
            await asking
        restoring.on_batch_restored(CHANGELOG, "counts", 300, 200)
        assert show._live is not None
        (bar,) = show._live.tasks
        assert (bar.description, bar.completed, bar.total, bar.fields["records"]) == ("restoring counts[1]", 200, 400, 200)
        restoring.on_restore_end(CHANGELOG, "counts", 400)
        assert not show._live.tasks
        assert not show.known
    assert "restored counts[1]: 400 records" in file.getvalue()


async def test_a_log_that_does_not_answer_leaves_a_bar_without_an_end() -> None:
    """A failure of a mere display fails nothing."""
    show, file = bars()

    async def ends(partition: TopicPartition) -> int:
        raise LogTimeout("nobody answers")

    with show:
        restoring = Restoring(show, ends)
        restoring.on_restore_start(CHANGELOG, "counts", None)
        for asking in list(restoring._asking):
            await asking
        restoring.on_batch_restored(CHANGELOG, "counts", 300, 200)
        restoring.on_restore_suspended(CHANGELOG, "counts", 200)
        restoring.on_batch_restored(CHANGELOG, "counts", 400, 100)  # nobody looks any more
    assert file.getvalue().splitlines() == ["restoring counts[1]: 200 records, at 300", "stopped restoring counts[1], after 200 records"]


def test_standbys_are_shown_with_the_end_that_they_follow() -> None:
    """Without a terminal there are lines, and one per partition in so many seconds."""
    now = 0.0
    file = io.StringIO()
    show = Bars(Console(file=file, width=120), 5.0, lambda: now)
    following = Following(show)
    following.on_update_start(CHANGELOG, "counts", None)
    for end in (100, 200, 300):
        following.on_batch_loaded(CHANGELOG, "counts", TaskId(0, 1), end, 100, 300)
    now = 6.0
    following.on_batch_loaded(CHANGELOG, "counts", TaskId(0, 1), 400, 100, 1000)
    following.on_update_suspended(CHANGELOG, "counts", 400, 1000, SuspendReason.PROMOTED)
    assert file.getvalue().splitlines() == [
        "standby counts[1]: 100 records, at 100 of 300",
        "standby counts[1]: 400 records, at 400 of 1,000",
        "standby counts[1]: promoted at 400 of 1,000",
    ]


def test_an_export_has_a_bar_for_each_partition() -> None:
    """From its start to its end; one without records has none, and none leaves a line."""
    show, file = bars(terminal=True)
    with show:
        exporting = Exporting(show)
        exporting(ExportProgress("counts", 0, 7, 7, 7, 0))
        assert not show.known
        exporting(ExportProgress("counts", 1, 100, 500, 100, 0))
        exporting(ExportProgress("counts", 1, 100, 500, 300, 150))
        assert show._live is not None
        (bar,) = show._live.tasks
        assert (bar.description, bar.completed, bar.total, bar.fields["records"]) == ("exporting counts[1]", 200, 400, 150)
        exporting(ExportProgress("counts", 1, 100, 500, 500, 400))
        assert not show.known
    plain, file = bars()
    with plain:
        exporting = Exporting(plain)
        exporting(ExportProgress("counts", 1, 100, 500, 100, 0))
        exporting(ExportProgress("counts", 1, 100, 500, 300, 150))
        exporting(ExportProgress("counts", 1, 100, 500, 500, 400))
    assert file.getvalue().splitlines() == ["exporting counts[1]: 150 records, at 300 of 500"]
