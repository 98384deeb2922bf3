"""One application of benchmarks/processes.py in several processes, each of which tells its progress.

A line of stdout has the process id, the time (s), the processed records, and the CPU time (s).
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._peer_apps import Tally, topology
from ks_actors import App, StreamsConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_EACH_S = 0.05


def main(processes: str, app: str, inputs: str, output: str, *settings: str) -> None:
    """Run the app until SIGTERM."""

    @asynccontextmanager
    async def progress() -> AsyncIterator[None]:
        telling = asyncio.create_task(_tell(made))
        try:
            yield
        finally:
            telling.cancel()

    config = StreamsConfig.of(dict(setting.split("=", 1) for setting in settings))
    made = App(topology(app, inputs.split(","), output, Tally()), config, services=[progress()])
    made.main(processes=int(processes))


async def _tell(app: App) -> None:
    while True:
        taken = int(app.metrics()["process-total"])
        # One write, so that lines of several processes do not mix.
        os.write(1, f"{os.getpid()} {time.monotonic():.4f} {taken} {time.process_time():.3f}\n".encode())
        await asyncio.sleep(_EACH_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
