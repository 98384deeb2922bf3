"""The command line, `ks-actors`: needs the extra `cli`, but for `--version`."""

from __future__ import annotations

import sys
from importlib.util import find_spec as _find_spec
from logging import DEBUG as _DEBUG
from logging import getLogger as _getLogger
from typing import TYPE_CHECKING

from ks_actors.cli._version import VERSION as _VERSION
from ks_actors.system import Later as _Later
from ks_actors.system import end_early as _end_early

if TYPE_CHECKING:
    from actors import events as _events
else:
    _events = _Later("actors.events")

__all__ = ["main"]


def main() -> None:
    """Run the command line; ends the process.

    Without the packages of the extra `cli`, print one line that names the package to install.
    """
    absent = next((package for package in ("click", "rich") if _find_spec(package) is None), None)
    if absent is not None:
        if sys.argv[1:] == ["--version"]:
            sys.stdout.write(f"{_VERSION}\n")
            return
        raise SystemExit(
            f"ks-actors: the command line needs the package {absent}: pip install 'ks-actors[cli]'"
        )
    from ks_actors.cli._main import ks_actors  # noqa: PLC0415 - needs an extra
    from ks_actors.cli._output import (  # noqa: PLC0415 - needs it, too
        check_stdout,
        drop_unwritten,
    )

    # An app needs no stdout, and its functions may print to it.
    if sys.argv[1:2] != ["run"]:
        check_stdout()
    try:
        ks_actors()
    except Exception as error:
        if not _getLogger("ks_actors").isEnabledFor(_DEBUG):
            _events.shorten(error)
        raise
    finally:
        drop_unwritten()
        # The end of the interpreter would show the traceback of a KeyboardInterrupt.
        _end_early()
