"""The program of a supervisor: `python -m ks_actors.cli.processes OPTIONS ARGUMENTS…`."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from ks_actors._errors import ConfigError
from ks_actors.cli._logging import set_up_logging
from ks_actors.cli.processes._options import Options
from ks_actors.cli.processes._supervisor import Supervisor


async def _supervise(options: Options, command: list[str], directory: Path) -> int:
    async with AsyncExitStack() as stack:
        supervisor = Supervisor(command, options.processes, directory, options.groups)
        if options.page is not None or options.probes is not None:
            try:
                from ks_actors.cli.processes._pages import serve_pages  # noqa: PLC0415 - an extra
            except ModuleNotFoundError as error:
                raise ConfigError(
                    f"--page and --probes need the package {error.name}: pip install "
                    "'ks-actors[web]'"
                ) from None
            await serve_pages(stack, supervisor, options, _tell)
        return await supervisor.run()


def _tell(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(f"{text}\n")


def main() -> None:
    """Run members of a program until a signal, or until they end."""
    options, command = Options(**json.loads(sys.argv[1])), [sys.executable, *sys.argv[2:]]
    if options.log_level is not None:
        set_up_logging(options.log_level, options.log_format)
    with TemporaryDirectory(prefix="ks-actors-", ignore_cleanup_errors=True) as directory:
        try:
            code = asyncio.run(_supervise(options, command, Path(directory)))
        except ConfigError as error:
            sys.stderr.write(f"Error: {error}\n")
            code = 2
    raise SystemExit(code)


if __name__ == "__main__":
    main()
