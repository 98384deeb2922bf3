"""The target of a command: an app or a topology, named on the command line."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ks_actors._errors import ConfigError, KsActorsError
from ks_actors.app import App
from ks_actors.config import StreamsConfig
from ks_actors.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ks_actors.config import Keywords


NO_ID = "application_id: is required"
PLACEHOLDER = "ks-actors"
"""The id of an application that is not named, where it does not matter."""


BY_SETTING = "-c application_id=ID, or application_id in the file of --config"
BY_OPTION = "--application-id ID, --app MODULE:NAME, or application_id in the file of --config"


def wrong_settings(error: KsActorsError, ways: str) -> click.UsageError:
    """Return the usage error for wrong settings; `ways` lists how to give an application's id."""
    return click.UsageError(str(error).replace(NO_ID, f"{NO_ID}: give {ways}"))


def load(target: str) -> Any:
    """Return the object at `module:name`; the name may have dots. Raises click.UsageError.

    Puts the working directory first on the import path.
    """
    module, colon, name = target.partition(":")
    if not (module and colon and name) or module.startswith("."):
        path = (module if colon else target).removesuffix(".py").replace("/", ".").strip(".")
        name = path if path.replace(".", "").isidentifier() else "shop.orders"
        raise click.UsageError(f"{target!r} is not module:name, such as {name}:topology")
    if (here := str(Path.cwd())) not in sys.path:
        # Do the same as `python -m`; the path of an installed command begins with its own
        # directory.
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise  # the module exists, but imports a missing one
        raise click.UsageError(
            f"module {module} does not exist: neither in {here} nor installed"
        ) from error
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise click.UsageError(f"module {module} has no {name}") from None
    return found


def settings(pairs: Iterable[str], option: str = "--conf") -> Keywords:
    """Return settings from `name=value`; names have dots or underscores.

    Raises click.UsageError.
    """
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise click.UsageError(f"{option} {pair!r} is not name=value")
        found[name.strip()] = value
    return found  # type: ignore[return-value]  # checked where all sources come together


def app_of(target: str, conf: Iterable[str], file: Path | None) -> App:
    """Return the app at `target`, or an app made from it. Raises click.ClickException.

    The target is an App, a Topology, an object with a `build` that returns a Topology, or a
    function that returns one of these. The function may take the config. A topology becomes an app
    with the config.
    """
    given = settings(conf)
    with _told(target):
        found, configured = _found(target, lambda: _config(given, file))
        if not isinstance(found, App):
            return App(found, _config(given, file))
    if not configured and (given or file is not None):
        raise click.UsageError(
            f"{target} is an App, which already has its config: --conf, --config and options for "
            "single settings need a topology, or a function that takes the config"
        )
    return found


@contextmanager
def _told(target: str) -> Iterator[None]:
    """Turn an error about the user's topology or settings into one line, which names the place.

    Raises click.ClickException, and click.UsageError for settings. Other errors of the user's own
    code pass, with their tracebacks.
    """
    try:
        yield
    except ConfigError as error:
        raise wrong_settings(error, BY_SETTING) from error
    except KsActorsError as error:
        where = _place(error)
        raise click.ClickException(f"{target}: {type(error).__name__}: {error}{where}") from error


def _place(error: Exception) -> str:
    """Return the innermost line of the user's code that an error went through, if any."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if top not in {"ks_actors", "actors"} and top not in sys.stdlib_module_names:
            found = f" ({frame.f_code.co_filename}:{line})"
    return found


def topology_of(target: str, conf: Iterable[str], file: Path | None) -> Topology:
    """Return the topology at `target`, as `app_of` finds it; the settings need no id.

    Raises click.ClickException.
    """
    return configured_topology_of(target, conf, file)[0]


def configured_topology_of(
    target: str, conf: Iterable[str], file: Path | None
) -> tuple[Topology, Callable[[], StreamsConfig]]:
    """Return the topology at `target`, and its config: that of its App, or else of the settings.

    Raises click.ClickException.
    """
    given = settings(conf)

    def config() -> StreamsConfig:
        try:
            return _config(given, file)
        except click.UsageError as error:
            if NO_ID not in str(error):
                raise
            return _config({**given, "application_id": PLACEHOLDER}, file)

    with _told(target):
        found, _ = _found(target, config)
    if isinstance(found, App):
        return found._topology, lambda: found.config
    return found, config


def _found(target: str, config: Callable[[], StreamsConfig]) -> tuple[App | Topology, bool]:
    """Return the app or topology at `target`, and whether it was made with the config."""
    found = load(target)
    configured = False
    if not isinstance(found, App) and callable(found) and not hasattr(found, "build"):
        configured = _takes_config(found)
        found = found(config()) if configured else found()
    if isinstance(found, App):
        return found, configured
    build = getattr(found, "build", None)
    if build is not None:
        found = build()
    if isinstance(found, Topology):
        return found, configured
    raise click.UsageError(
        f"{target} is neither an App nor a Topology, nor a function that makes one: it is "
        f"{type(found).__name__}"
    )


def _takes_config(function: Any) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        for parameter in parameters
    )


def _config(given: Keywords, file: Path | None) -> StreamsConfig:
    try:
        return StreamsConfig.load(file, **given)
    except KsActorsError as error:
        raise wrong_settings(error, BY_SETTING) from error
