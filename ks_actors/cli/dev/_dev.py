"""The command `dev`."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import click

from ks_actors.cli._application import FILE
from ks_actors.cli._logging import set_up_logging
from ks_actors.cli._output import tell
from ks_actors.cli._run import LEVELS, page_of
from ks_actors.cli._target import NO_ID, app_of
from ks_actors.cli.dev._forms import Tracebacks
from ks_actors.cli.dev._session import Session
from ks_actors.cli.dev._terminal import Terminal
from ks_actors.log.embedded import EmbeddedLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ks_actors.app import App

# A person sees results, and new topics, without a wait.
_SOON_MS: Final = 200


@click.command()
@click.argument("target", metavar="MODULE:NAME")
@click.option(
    "--conf",
    "-c",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting: commit_interval_ms=500, or commit.interval.ms=500. Repeatable.",
)
@click.option("--config", "file", type=FILE, help="Settings from a .toml or .properties file.")
@click.option(
    "--directory",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the log and the state in this directory. Default: they are gone at the end.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    metavar="N",
    help="The partitions of new topics. Default: as many as the app gives its own, or 1.",
)
@click.option(
    "--page",
    type=click.IntRange(0, 65_535),
    metavar="PORT",
    help="The port of the page, on loopback; 0: any, the default in a terminal. Without a terminal "
    "there is a page only with this option.",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default="warning",
    show_default=True,
    help="The lowest level that is logged.",
)
@click.option(
    "--reload-dir",
    "directories",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Watch this directory, not the working one. Repeatable.",
)
def dev(
    target: str,
    conf: tuple[str, ...],
    file: Path | None,
    directory: Path | None,
    partitions: int | None,
    page: int | None,
    log_level: str,
    directories: tuple[Path, ...],
) -> None:
    """Run an app without servers: on an embedded log, with commands to send and see records.

    MODULE:NAME and the settings are those of `run`. The log is in memory, missing topics are made,
    and the records of the output topics are printed, as are those of the topic with dead letters.
    In a terminal there are a prompt and a page, and the app starts again when a source changes.
    Otherwise the lines of stdin are the commands: at their end the app processes all input, and the
    command ends. `help` lists the commands.

    Exit codes: 0 the end of the commands, or a signal, 1 the app ended with an error, 2 wrong
    command line, or a command was refused.
    """
    if sys.stdin is not None and sys.stdin.isatty():
        again = [target, *(f"--conf={pair}" for pair in conf), f"--log-level={log_level}"]
        again += [] if file is None else [f"--config={file}"]
        again += [] if partitions is None else [f"--partitions={partitions}"]
        raise SystemExit(_in_terminal(again, directory, page, directories or (Path.cwd(),)))
    tracebacks = Tracebacks()
    set_up_logging(log_level, _ShortFormatter(tracebacks))
    try:
        app = _app_of(target, conf, file)
    except click.ClickException:
        raise
    except Exception as error:  # the user's own code may raise anything
        tell(tracebacks.of(error))
        raise SystemExit(1) from error
    if page is not None:
        app._early_services = (page_of(app, page),)
    app._start_report.tell = tell
    with _directory(directory) as kept:
        log = EmbeddedLog(None if directory is None else kept / "log")
        refused = asyncio.run(_run(app, log, kept / "state", partitions, tracebacks))
    if refused:
        raise SystemExit(2)


def _in_terminal(
    arguments: Sequence[str], directory: Path | None, page: int | None, watched: Sequence[Path]
) -> int:
    """Run the command in a child without a terminal, again after each change."""
    if page is None and (find_spec("uvicorn") is None or find_spec("starlette") is None):
        tell("there is no page: pip install 'ks-actors[web]'")
        served = []
    else:
        # Use one port for all runs, so that an open page finds the next run.
        served = [f"--page={page or _free_port()}"]
    # The log outlives the child, which is replaced after each change.
    with _directory(directory) as kept:
        again = [*arguments, f"--directory={kept.absolute()}", *served]
        command = [sys.executable, "-m", "ks_actors.cli", "dev", *again]
        return Terminal(command, watched).run()


@contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    """Yield the given directory, or a temporary directory, which is deleted at the end."""
    if given is not None:
        yield given
        return
    with TemporaryDirectory(prefix="ks-actors-dev-") as gone:
        yield Path(gone)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def _app_of(target: str, conf: tuple[str, ...], file: Path | None) -> App:
    """Return the app at `target`; a topology without an application's id gets one.

    Raises click.ClickException, and errors of the user's code.
    """
    try:
        return app_of(target, conf, file)
    except click.UsageError as error:
        if NO_ID not in str(error):
            raise
        return app_of(target, [*conf, "application_id=dev"], file)


async def _run(
    app: App, log: EmbeddedLog, state: Path, partitions: int | None, tracebacks: Tracebacks
) -> int:
    """Run the app on this log; return the number of refused commands."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        async with log:
            config = app.config.replace(
                state_dir=state,
                commit_interval_ms=min(app.config.commit_interval_ms, _SOON_MS),
                metadata_max_age_ms=min(app.config.metadata_max_age_ms, _SOON_MS),
                # Existing snapshots belong to another log.
                snapshot_uri=None,
            )
            app._move(log, config)
            session = Session(app, log, partitions or max(app._topics.values(), default=1))
            await session.run()
            return session.refused
    except asyncio.CancelledError:
        return 0
    except Exception as error:
        if (told := tracebacks.of(error)).startswith("Traceback"):
            tell(told)
        raise click.ClickException(
            f"{app.config.application_id} has ended: {type(error).__name__}: {error}"
        ) from error


class _ShortFormatter(logging.Formatter):
    """Lines with short tracebacks."""

    def __init__(self, tracebacks: Tracebacks) -> None:
        super().__init__("%(levelname)s %(message)s")
        self._tracebacks: Tracebacks = tracebacks

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name in logging
        """Return the traceback of an error."""
        return "" if ei[1] is None else self._tracebacks.of(ei[1])
