"""Run a broker, the load and two instances, and print where their pages are.

Run: make demo-ops (it needs Java and, the first time, Maven). Ctrl-C ends everything. Kill an
instance with its printed process id to see the other one take over its tasks.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
import sys
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ks_actors.log import open_log
from tests.kafka.broker import Broker, free_ports, missing_tools

from .load import fill_tables, fly

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

INSTANCES = ("a", "b")
END_S = 60


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.operations", description="Two instances of the flights job under load, with pages.")
    parser.add_argument(
        "--rate", type=int, default=500, metavar="N", help="flights per second; at 500 the year takes 11 minutes (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=float, help="end after so many seconds (default: at Ctrl-C)")
    return parser.parse_args()


def main() -> None:
    """Run until Ctrl-C, or for some seconds."""
    given = arguments()
    # SIGTERM ends it as Ctrl-C does: with the broker and the instances.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if (missing := missing_tools()) is not None:
        raise SystemExit(f"there can be no broker: {missing}")
    with tempfile.TemporaryDirectory(prefix="ks-actors-operations-") as directory, suppress(KeyboardInterrupt):
        broker = Broker(Path(directory) / "broker")
        try:
            broker.start()
            asyncio.run(run(broker.bootstrap, Path(directory), given.rate, given.seconds))
        finally:
            broker.stop()


async def run(bootstrap: str, directory: Path, rate: int, seconds: float | None) -> None:
    """Start the instances, and load until the end."""
    log = open_log(f"kafka://{bootstrap}")
    await log.start()
    try:
        await fill_tables(log)
        token = secrets.token_urlsafe(16)
        async with AsyncExitStack() as stack:
            for name, port in zip(INSTANCES, free_ports(len(INSTANCES)), strict=True):
                process = await stack.enter_async_context(instance(name, bootstrap, directory / name, port, token))
                print(f"instance {name}, process {process.pid}: http://127.0.0.1:{port}/#token={token}", flush=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await fly(log, rate)
                    print("the year is over: the instances go on without load, until Ctrl-C", flush=True)
                    await asyncio.Event().wait()
    finally:
        await log.close()


@asynccontextmanager
async def instance(name: str, bootstrap: str, directory: Path, port: int, token: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run an instance in a process of its own, which is asked to end at the end of the block."""
    command = ["-m", "examples.operations.instance", name, bootstrap, str(directory), str(port)]
    # The token is no argument: those can be read by every user of the machine.
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdin=asyncio.subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(f"{token}\n".encode())
    await process.stdin.drain()
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
