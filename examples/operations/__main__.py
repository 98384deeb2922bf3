"""Run a broker, the load and two instances, and print where their pages are.

Run: make demo-ops (it needs Java and, the first time, Maven). Ctrl-C ends everything. Kill an
instance with its printed process id to see the other one take over its tasks. The second instance
has a supervisor with several members: kill one of these to see it start again with its tasks.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import sys
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ks_actors.log import open_log
from tests.kafka.broker import Broker, free_ports, missing_tools

from .instance import TOKEN, settings
from .load import fill_tables, fly

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

END_S = 60


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.operations", description="Two instances of the flights job under load, with pages.")
    parser.add_argument(
        "--rate", type=int, default=500, metavar="N", help="flights per second; at 500 the year takes 11 minutes (default: %(default)s)"
    )
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="members of the second instance (default: %(default)s)")
    parser.add_argument("--seconds", type=float, help="end after so many seconds (default: at Ctrl-C)")
    return parser.parse_args()


def main() -> None:
    """Run until Ctrl-C, or for some seconds."""
    given = arguments()
    # SIGTERM, and SIGHUP at the end of the terminal, end it as Ctrl-C does: with the broker and the instances.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    if (missing := missing_tools()) is not None:
        raise SystemExit(f"there can be no broker: {missing}")
    with tempfile.TemporaryDirectory(prefix="ks-actors-operations-") as directory, suppress(KeyboardInterrupt):
        broker = Broker(Path(directory) / "broker")
        try:
            broker.start()
            asyncio.run(run(broker.bootstrap, Path(directory), given.rate, given.processes, given.seconds))
        finally:
            broker.stop()


async def run(bootstrap: str, directory: Path, rate: int, processes: int, seconds: float | None) -> None:
    """Start the instances, and load until the end."""
    log = open_log(f"kafka://{bootstrap}")
    await log.start()
    try:
        await fill_tables(log)
        token = secrets.token_urlsafe(16)
        async with AsyncExitStack() as stack:
            ports = free_ports(2)
            first, second = (f"http://127.0.0.1:{port}/" for port in ports)
            process = await stack.enter_async_context(running(alone("a", bootstrap, directory / "a", ports[0]), token))
            print(f"instance a, process {process.pid}: {first}#token={token}", flush=True)
            process = await stack.enter_async_context(running(members("b", bootstrap, directory / "b", ports[1], processes), token))
            print(f"instance b, process {process.pid}, with {processes} members: {second}", flush=True)
            for number in range(1, processes + 1):
                print(f"    member {number}: {second}members/{number}/#token={token}", flush=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await fly(log, rate)
                    print("the year is over: the instances go on without load, until Ctrl-C", flush=True)
                    await asyncio.Event().wait()
    finally:
        await log.close()


def alone(name: str, bootstrap: str, directory: Path, port: int) -> list[str]:
    """Return the command line of an instance of one process."""
    return ["-m", "examples.operations.instance", name, bootstrap, str(directory), str(port)]


def members(name: str, bootstrap: str, directory: Path, port: int, count: int) -> list[str]:
    """Return the command line of an instance of several processes with one page."""
    words = [f"--conf={name}={value}" for name, value in settings(name, bootstrap, directory).items()]
    return ["-m", "ks_actors", "run", "examples.operations.instance:app", "--quiet", "--processes", str(count), "--page", str(port), *words]


@asynccontextmanager
async def running(command: list[str], token: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a process, which is asked to end at the end of the block."""
    # The token is no argument: those can be read by every user of the machine.
    # In a group of its own it gets no Ctrl-C of the terminal: with SIGTERM that would be a second signal, which ends members at once.
    process = await asyncio.create_subprocess_exec(sys.executable, *command, env=os.environ | {TOKEN: token}, process_group=0)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), END_S)
            except TimeoutError:
                process.kill()
                await process.wait()


if __name__ == "__main__":
    main()
