"""An application of benchmarks/processes.py in several processes, each of which tells its progress.

A line of stdout is a `Said` in JSON; there is one every 50 ms and at each change of state.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import msgspec

from benchmarks._kafka_process import environment
from benchmarks._peer_apps import Tally, topology
from ks_actors import App, StreamsConfig
from ks_actors.system import current_member

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

_EACH_S = 0.05


class Said(msgspec.Struct):
    """A member at a moment (s): its process, state and tasks, the records it has processed, its CPU time (s)."""

    pid: int
    moment: float
    state: str
    tasks: list[str]
    taken: int
    cpu: float


@asynccontextmanager
async def program(
    processes: int, app: str, inputs: Sequence[str], output: str, settings: dict[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start the app in so many processes, with a new state directory; kill it at the end unless it has ended.

    Its members tell their progress on its stdout.
    """
    directory = tempfile.mkdtemp(prefix="ks-bench-processes-")
    given = {"application.id": f"{output}-app", "state.dir": directory, **settings}
    words = [str(processes), app, ",".join(inputs), output, *(f"{key}={value}" for key, value in given.items())]
    running = await asyncio.create_subprocess_exec(sys.executable, __file__, *words, stdout=asyncio.subprocess.PIPE, env=environment())
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
        shutil.rmtree(directory, ignore_errors=True)


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
    made = App(topology(app, inputs.split(","), output, Tally()), config, services=[progress()], on_state=lambda new, _: _say(made, new.name))
    if current_member() is not None:
        _say(made, made.state.name)
    made.main(processes=int(processes))


async def _tell(app: App) -> None:
    while True:
        _say(app, app.state.name)
        await asyncio.sleep(_EACH_S)


def _say(app: App, state: str) -> None:
    tasks, taken = [str(task.task) for task in app.tasks()], int(app.metrics()["process-total"])
    said = Said(os.getpid(), time.monotonic(), state, tasks, taken, time.process_time())
    # One write, so that lines of several processes do not mix.
    os.write(1, msgspec.json.encode(said) + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
