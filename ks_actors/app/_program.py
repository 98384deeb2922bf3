"""A program that consists of one app."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from actors.events import shorten
from ks_actors._errors import KsActorsError
from ks_actors.app._event_loop import fastest_loop, refuse_other_threads, refuse_running_loop
from ks_actors.app._members import supervise, tell_end
from ks_actors.app._memory_tuning import tune_gc
from ks_actors.app._signals import kept_handlers
from ks_actors.lifecycle import component_log
from ks_actors.system import raise_open_files

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from ks_actors.app._start_log import StartReport

_log = component_log(__name__)


def run_program(
    run: Callable[[], Coroutine[Any, Any, None]],
    report: StartReport,
    processes: int | str | Mapping[str, int] | None,
) -> None:
    """Run an app as `App.main` does, or become the supervisor of processes that do."""
    refuse_running_loop(of="App.main", remedy="await app.run() instead")
    refuse_other_threads(of="App.main", remedy="asyncio.run(app.run())")
    if processes is not None:
        supervise(processes)
    tune_gc()
    raise_open_files()
    report.be_told()
    with kept_handlers(), asyncio.Runner(loop_factory=fastest_loop()) as runner:
        runner.run(run())


def tell_end_of_program(error: Exception) -> None:
    """Tell the supervisor, if any, of a program's last error, and keep only the user's frames.

    At the log level DEBUG the traceback stays whole.
    """
    tell_end(error)
    if not _log.isEnabledFor(logging.DEBUG):
        says_all = isinstance(error, KsActorsError) and error.__cause__ is None
        shorten(error, says_all=says_all)
