"""An app that forks, as a process of its own: `python -m tests.ks_actors.system.forking DIRECTORY`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from ks_actors import App, StreamsConfig
from ks_actors.log.embedded import EmbeddedLog
from tests.ks_actors.runtime.helpers import counting


def counting_app(directory: Path, log: EmbeddedLog) -> App:
    """Return a count with its state below `directory`."""
    return App(counting("rocksdb"), StreamsConfig(application_id="app", state_dir=directory / "state"), log=log, topics={"in": 2, "out": 1})


async def main(directory: Path) -> None:
    """Start the app, fork, and have the child write its process id; close the app at SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with EmbeddedLog(directory / "log") as log, counting_app(directory, log):
        if not os.fork():
            # It tells of itself when it has let go of its parent's locks, and lives until nobody holds the other end of its input any more.
            os.write(1, f"{os.getpid()}\n".encode())
            while os.read(0, 1):
                pass
            os._exit(0)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
