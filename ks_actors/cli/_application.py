"""Options of commands that look at an application, which may run elsewhere."""

from __future__ import annotations

import asyncio
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import click

from ks_actors._errors import KsActorsError
from ks_actors.cli._output import reported
from ks_actors.cli._target import (
    BY_OPTION,
    NO_ID,
    PLACEHOLDER,
    app_of,
    settings,
    wrong_settings,
)
from ks_actors.config import StreamsConfig, missing_directory, opened
from ks_actors.log import ManagesGroups
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.task import Planning

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ks_actors.app import App
    from ks_actors.log import Log
    from ks_actors.topology import Topology

T = TypeVar("T")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Application(NamedTuple):
    """An application: its settings, and its app where the command line names one."""

    config: StreamsConfig
    app: App | None = None

    @property
    def topology(self) -> Topology | None:
        """The topology, where the command line names one."""
        return None if self.app is None else self.app._topology

    @property
    def topics(self) -> Mapping[str, int]:
        """The topics that the start of the app creates, with their numbers of partitions."""
        return {} if self.app is None else self.app._topics

    @property
    def planning(self) -> Planning:
        """The app's own assignor and grouper."""
        return Planning() if self.app is None else self.app._planning

    @property
    def missing(self) -> Path | None:
        """The directory of an embedded log, if it has none yet."""
        given = None if self.app is None else self.app._given_log
        return missing_directory(self.config) if given is None else None

    def ask(
        self,
        work: Callable[[Log], Awaitable[T]],
        timeout_ms: int | None = None,
        *,
        if_missing: Literal["refuse", "empty", "create"] = "refuse",
    ) -> T:
        """Run work on the open log; an error is one line and exit code 1.

        Raises a usage error if there are neither an app nor servers. `if_missing` applies when the
        directory of an embedded log does not exist: `empty` opens a log in memory instead. The
        default is to refuse, because a command must not create a log for a mistyped path.
        """
        config = self.config
        if self.app is None and config.origins["log"] == "default" and not config.bootstrap_servers:
            raise click.UsageError(
                "no Kafka servers are named: give --bootstrap-servers HOST:PORT, or set "
                "bootstrap_servers in the file of --config or in KS_ACTORS_BOOTSTRAP_SERVERS; or "
                "-c log=embedded:///path for a log in a directory"
            )

        async def run() -> T:
            # An app that was made with a log, such as an embedded one, uses that log, not its
            # settings.
            given = None if self.app is None else self.app._given_log
            missing = None if if_missing == "create" else self.missing
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                if missing is not None:
                    if if_missing == "refuse":
                        raise no_log(self.config, missing)
                    async with EmbeddedLog() as log:
                        return await work(log)
                async with opened(self.config, given) as log:
                    return await work(log)

        with reported(self.config.application_id):
            try:
                return asyncio.run(run())
            except TimeoutError:
                raise click.ClickException(
                    f"{self.config.application_id}: {self.config.log} did not answer within "
                    f"{timeout_ms} ms"
                ) from None


def no_log(config: StreamsConfig, directory: Path) -> click.ClickException:
    """Return the error about a directory without a log."""
    return click.ClickException(
        f"{config.application_id}: there is no log in {directory}: check the setting log; the "
        "start of an app, `topics create` and `send` create one"
    )


def groups_of(log: Log) -> ManagesGroups:
    """Return the log, typed as a log with groups. Raises click.ClickException."""
    if not isinstance(log, ManagesGroups):
        raise click.ClickException(
            f"{type(log).__name__} cannot describe groups: it lacks the methods of "
            "ks_actors.log.ManagesGroups"
        )
    return log


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the settings to a command that runs an app; it gets them as `conf` and `file`."""

    @wraps(command)
    def wrapped(**options: Any) -> Any:
        return command(conf=_pairs(options), **options)

    return _with_id(_settings(wrapped), hidden=False)


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --conf, --config and --json."""
    return _settings(click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command))


def _settings(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option(
        "--config",
        "--command-config",
        "file",
        type=FILE,
        help="Settings from a .toml or .properties file.",
    )(command)
    return click.option(
        "--conf",
        "-c",
        metavar="NAME=VALUE",
        multiple=True,
        help="A setting, such as security.protocol=SSL. Repeatable.",
    )(command)


def of_target(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add MODULE:NAME and the settings; give the command an Application."""

    @wraps(command)
    def wrapped(target: str, file: Path | None, **options: Any) -> Any:
        app = app_of(target, _pairs(options), file)
        return command(Application(app.config, app), **options)

    return click.argument("target", metavar="MODULE:NAME")(
        _with_id(settings_options(wrapped), hidden=False)
    )


def _pairs(options: dict[str, Any]) -> list[str]:
    """Take the settings out of the options, as pairs; options for single settings come last."""
    pairs = [*options.pop("conf")]
    for option, name in (("servers", "bootstrap_servers"), ("application_id", "application_id")):
        if (value := options.pop(option)) is not None:
            pairs.append(f"{name}={value}")
    return pairs


def _with_id(command: Callable[..., Any], *, hidden: bool) -> Callable[..., Any]:
    """Add --bootstrap-servers and --application-id."""
    command = click.option(
        "--bootstrap-servers",
        "--bootstrap-server",
        "servers",
        metavar="HOST:PORT",
        help="The Kafka servers.",
    )(command)
    return click.option(
        "--application-id", metavar="ID", help="The id of the application.", hidden=hidden
    )(command)


def of_application(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --app or --application-id, and the settings; give the command an Application."""
    return _optional(command, needs_id=True)


def of_log(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the settings of a log, without those of an application."""
    return _optional(command, needs_id=False)


def _optional(command: Callable[..., Any], *, needs_id: bool) -> Callable[..., Any]:
    @wraps(command)
    def wrapped(target: str | None, file: Path | None, **options: Any) -> Any:
        pairs = _pairs(options)
        try:
            if target is None:
                found = Application(_config(pairs, file, needs_id=needs_id))
            else:
                app = app_of(target, pairs, file)
                found = Application(app.config, app)
        except KsActorsError as error:
            raise wrong_settings(error, BY_OPTION) from error
        return command(found, **options)

    made = _with_id(settings_options(wrapped), hidden=not needs_id)
    return click.option(
        "--app",
        "target",
        metavar="MODULE:NAME",
        help="The app or topology; it gives settings, and what it reads and writes.",
    )(made)


def _config(pairs: list[str], file: Path | None, *, needs_id: bool) -> StreamsConfig:
    given = settings(pairs)
    try:
        return StreamsConfig.load(file, **given)
    except KsActorsError as error:
        # The log alone needs no id, but settings cannot be made without an id.
        if needs_id or NO_ID not in str(error):
            raise
        given["application_id"] = PLACEHOLDER
        return StreamsConfig.load(file, **given)
