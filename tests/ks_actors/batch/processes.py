"""Processes that tests start, those that these start, and when they have come to a point, or to their end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from tests.ks_actors.batch.driver import Order

PATIENCE = 200


class Meeting:
    """A place in the file system where any process can say that it has come there."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    async def come(self, process: asyncio.subprocess.Process) -> None:
        """Wait until somebody is there. Raises AssertionError when the process that was to come, or to send others, has ended before."""
        ended = asyncio.ensure_future(process.wait())
        met = asyncio.ensure_future(readable(self._fd))
        done, _ = await asyncio.wait({ended, met}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        for each in (ended, met):
            each.cancel()
        assert met in done, f"nobody has come to {self.path} within {PATIENCE} s; the process has ended: {ended in done}"

    def over(self) -> None:
        """Let nobody stand still here any more."""
        os.close(self._fd)
        self.path.unlink()


async def readable(fd: int) -> None:
    """Wait until a file can be read: a pipe has something, or a process has ended."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


@asynccontextmanager
async def driver(order: Order, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a driver, in a session of its own that identifies its processes; end all of them in the end. Its output goes into `log`."""
    with log.open("ab") as said:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.ks_actors.batch.driver",
            msgspec.json.encode(order).decode(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=said,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for each in of_session(process.pid):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        await process.wait()


async def drive(order: Order, log: Path) -> tuple[int, str]:
    """Run a driver to its end; return its exit code and its output."""
    async with driver(order, log) as process:
        try:
            printed, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
        except TimeoutError:
            raise AssertionError(f"{order} was not done within {PATIENCE} s:\n{end_of(log)}") from None
        assert process.returncode is not None
        if process.returncode > 0:
            raise AssertionError(f"{order} has failed:\n{end_of(log)}")
        return process.returncode, printed.decode().strip()


def end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-4000:]


def of_session(session: int) -> list[int]:
    """Return the processes that a session has, as the kernel tells; those that nobody has buried have ended."""
    return [pid for pid, fields in _processes() if int(fields[3]) == session and fields[0] != "Z"]


def below(parent: int) -> dict[int, str]:
    """Return the processes that a process has started, and that they have started, with their commands."""
    children: dict[int, list[int]] = {}
    for pid, fields in _processes():
        if fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(pid)
    found: dict[int, str] = {}
    looking = [parent]
    while looking:
        for pid in children.get(looking.pop(), ()):
            looking.append(pid)
            with suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return found


def _processes() -> Iterable[tuple[int, list[str]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has just ended
                # State, parent, group and session come behind the name, which may hold anything.
                yield int(entry.name), (entry / "stat").read_text().rpartition(")")[2].split()


async def ended(pids: Iterable[int]) -> None:
    """Wait until processes have ended, with any parent."""
    for pid in pids:
        with suppress(ProcessLookupError):
            fd = os.pidfd_open(pid)
            try:
                await asyncio.wait_for(readable(fd), PATIENCE)
            finally:
                os.close(fd)
