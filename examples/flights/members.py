"""The job in several processes of `ks-actors run --processes`, the members of its group."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ks_actors import App, InstanceState, StreamsConfig

from . import job, topology

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CAUGHT_UP = b"caught up\n"


def app(config: StreamsConfig) -> App:
    """Return the app of one member: it prints a line when all flights are processed by all members."""
    waiting: list[asyncio.Task[None]] = []

    async def wait() -> None:
        await made.wait_until_caught_up(job.PATIENCE_MS)
        sys.stdout.buffer.write(CAUGHT_UP)
        sys.stdout.flush()

    def wait_once(state: InstanceState, _: InstanceState) -> None:
        if state is InstanceState.RUNNING and not waiting:
            waiting.append(asyncio.ensure_future(wait()))

    made = App(topology.build(), job.complete(config), on_state=wait_once)
    return made


def command(options: job.Options) -> list[str]:
    """Return the command line of the supervisor."""
    settings = {
        "application_id": job.APPLICATION,
        "bootstrap_servers": options.servers,
        "state_dir": options.directory.absolute() / "state",
        "processing_guarantee": options.guarantee,
        "commit_interval_ms": options.commit_interval_ms,
    }
    words = [f"--conf={name}={value}" for name, value in settings.items()]
    page = ["--page", "0"] if options.page else []
    return ["-m", "ks_actors", "run", f"{__name__}:app", "--processes", str(options.processes), "--quiet", *page, *words]


@asynccontextmanager
async def working(options: job.Options) -> AsyncIterator[asyncio.Future[None]]:
    """Run the members during the block; the future is done when all flights are processed and committed."""
    # In a group of its own it gets no Ctrl-C of the terminal: with SIGTERM that would be a second signal, which ends members at once.
    process = await asyncio.create_subprocess_exec(sys.executable, *command(options), stdout=asyncio.subprocess.PIPE, process_group=0)
    hearing = asyncio.ensure_future(hear(process))
    try:
        yield hearing
    finally:
        hearing.cancel()
        if process.returncode is None:
            process.terminate()
        code = await process.wait()
    if code != 0:
        raise RuntimeError(f"the members have ended with exit code {code} after SIGTERM")


async def hear(process: asyncio.subprocess.Process) -> None:
    """Wait for the line of the first member that is done. Raises RuntimeError when all members end before."""
    assert process.stdout is not None
    if await process.stdout.readline() != CAUGHT_UP:
        raise RuntimeError(f"the members have ended, with exit code {await process.wait()}")
