"""`ks-actors run`: an app as a program of its own."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ks_actors._errors import ConfigError, KsActorsError
from ks_actors.app import processes_of, supervise
from ks_actors.cli._application import connection_options
from ks_actors.cli._bars import Bars, Following, Restoring
from ks_actors.cli._logging import FORMATS, set_up_logging
from ks_actors.cli._output import progress_console, tell
from ks_actors.cli._reload import run_reloading
from ks_actors.cli._remote import TOKEN
from ks_actors.cli._target import app_of
from ks_actors.config import without_login
from ks_actors.log import IsolationLevel
from ks_actors.system import current_member, heed_signals

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from ks_actors.app import App
    from ks_actors.log import TopicPartition
    from ks_actors.system import MemberProcess

LEVELS = ("debug", "info", "warning", "error")
_HIGHEST_PORT: Final = 65_535


def _address(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> tuple[str, int] | None:
    """Return the parts of `[HOST:]PORT`: loopback without a host; IPv6 is in brackets."""
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= _HIGHEST_PORT):
        raise click.BadParameter(f"{value!r} is not [HOST:]PORT, as in 9464 or 0.0.0.0:9464")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def _processes(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    try:
        if value is not None:
            processes_of(value)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None
    return value


@click.command()
@click.argument("target", metavar="MODULE:NAME")
@connection_options
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default="warning",
    show_default=True,
    help="The lowest level that is logged to stderr.",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="The form of log records: lines, or one JSON object per line.",
)
@click.option(
    "--quiet",
    "-q",
    is_flag=True,
    help="Tell neither the guarantee, nor progress, nor that the app runs.",
)
@click.option(
    "--page",
    type=click.IntRange(0, 65_535),
    metavar="PORT",
    help="Serve the HTTP API and page at this port of loopback; 0: any. Its orders need the token "
    f"in the variable {TOKEN}, and there are none without it.",
)
@click.option(
    "--probes",
    callback=_address,
    metavar="[HOST:]PORT",
    help="Serve /health, /ready and /metrics alone, for an orchestrator and Prometheus. Only on "
    "loopback without a host; 0.0.0.0:PORT for all of this machine's addresses.",
)
@click.option(
    "--processes",
    metavar="N|auto|QUERY=N,...",
    callback=_processes,
    help="Run the app in N processes, or one for each core, or N for each of its queries, as in "
    "fraud=1,rest=3. Each is a member of the group, and "
    "is restarted when it dies. They share the page and the probes. SIGHUP restarts one by one.",
)
@click.option("--reload", is_flag=True, help="Start again when a source changes. For development.")
@click.option(
    "--reload-dir",
    "directories",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Watch this directory, not the working one. Repeatable.",
)
def run(
    target: str,
    conf: Sequence[str],
    file: Path | None,
    log_level: str,
    log_format: str,
    quiet: bool,
    page: int | None,
    probes: tuple[str, int] | None,
    processes: str | None,
    reload: bool,
    directories: tuple[Path, ...],
) -> None:
    """Run an app until SIGINT or SIGTERM, or until it ends by itself.

    MODULE:NAME is an App, a Topology, a StreamsBuilder, or a function that returns one of these and
    may take the config. Settings are those of --config, then of the environment
    (KS_ACTORS_COMMIT_INTERVAL_MS), then of --conf. Stderr shows the progress of restoring and of
    standbys, and a line once the app runs.

    The first signal commits and closes. Exit codes: 0 closed by a signal or by itself, 1 the app
    ended with an error, 2 wrong command line, 130 or 143 a signal before the app began.
    """
    if reload and processes is not None:
        raise click.UsageError("--processes and --reload exclude each other")
    if reload:
        again = [target, *(f"--conf={pair}" for pair in conf), f"--log-level={log_level}"]
        again += [f"--log-format={log_format}", *(["--quiet"] if quiet else [])]
        again += [] if file is None else [f"--config={file}"]
        again += [] if page is None else [f"--page={page}"]
        again += [] if probes is None else [f"--probes={_shown(*probes)}"]
        heed_signals()
        raise SystemExit(run_reloading(again, directories or (Path.cwd(),)))
    if directories:
        raise click.UsageError("--reload-dir needs --reload")
    if processes is not None:
        supervise(
            processes,
            page=page,
            probes=probes,
            log_level=log_level,
            log_format=log_format,
            quiet=quiet,
        )
    member = current_member()
    set_up_logging(log_level, log_format, None if member is None else member.number)
    app = app_of(target, conf, file)
    say = tell if member is None else lambda text: tell(f"[{member.number}] {text}")
    if not quiet:
        say(f"{app.config.application_id} starts with {app.config.processing_guarantee.value}")
    app._early_services = tuple(_servers(app, page, probes, member))
    app._start_report.tell = (lambda _: None) if quiet else say
    # Bars of several processes would overwrite each other.
    with Bars(progress_console(quiet=quiet or member is not None)) as bars:
        _show(app, bars)
        try:
            app.main()
        except KsActorsError as error:
            raise _ended(app, error) from error
        except OSError as error:
            # Processing errors are wrapped, so this error concerns a place, and may not name it.
            uri = app.config.snapshot_uri
            where = "" if uri is None else f"; snapshot_uri is {without_login(uri)}"
            raise _ended(app, error, where) from error


def _ended(app: App, error: Exception, where: str = "") -> click.ClickException:
    return click.ClickException(
        f"{app.config.application_id} has ended: {type(error).__name__}: {error}{where}"
    )


def _servers(
    app: App,
    page: int | None,
    probes: tuple[str, int] | None,
    member: MemberProcess | None,
) -> Iterator[AbstractAsyncContextManager[None]]:
    """Yield the servers of an app; the supervisor of a member has the addresses."""
    if member is None:
        if page is not None:
            yield page_of(app, page)
        if probes is not None:
            yield _probes(app, *probes)
    elif page is not None or probes is not None:
        yield _page_of_member(app, member)


@asynccontextmanager
async def _page_of_member(app: App, member: MemberProcess) -> AsyncIterator[None]:
    from ks_actors.web import serve_member  # noqa: PLC0415 - needs an extra, which was there

    async with AsyncExitStack() as stack:
        token = os.environ.get(TOKEN) or None
        try:
            await stack.enter_async_context(serve_member(app, member.socket, token=token))
        except OSError as error:
            raise ConfigError(f"{member.socket} cannot be served: {error}") from error
        except ValueError as error:
            raise ConfigError(f"{TOKEN}: {error}") from error
        yield


@asynccontextmanager
async def page_of(app: App, port: int) -> AsyncIterator[None]:
    """Serve the page, and print its address."""
    try:
        from ks_actors.web import serve_page  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--page needs the package {error.name}: pip install 'ks-actors[web]'"
        ) from None
    token = os.environ.get(TOKEN) or None
    async with AsyncExitStack() as stack:
        try:
            page = await stack.enter_async_context(serve_page(app, port=port, token=token))
        except OSError as error:
            raise ConfigError(f"the page cannot be served at port {port}: {error}") from error
        except ValueError as error:
            raise ConfigError(f"{TOKEN}: {error}") from error
        tell(f"the page is at {page.url}")
        yield


@asynccontextmanager
async def _probes(app: App, host: str, port: int) -> AsyncIterator[None]:
    """Serve the probes, and print their address."""
    try:
        from ks_actors.web import serve_probes  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--probes needs the package {error.name}: pip install 'ks-actors[web]'"
        ) from None
    async with AsyncExitStack() as stack:
        try:
            address = await stack.enter_async_context(serve_probes(app, host=host, port=port))
        except OSError as error:
            raise ConfigError(
                f"the probes cannot be served at {_shown(host, port)}: {error}"
            ) from error
        tell(f"the probes are at {address}health, {address}ready and {address}metrics")
        yield


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _show(app: App, bars: Bars) -> None:
    async def ends(partition: TopicPartition) -> int:
        found = await app.log.end_offsets([partition], IsolationLevel.READ_COMMITTED)
        return found[partition]

    app._progress.also(Restoring(bars, ends), Following(bars))
