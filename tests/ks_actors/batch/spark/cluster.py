"""Spark as others run it: a master and workers on this machine, and a Spark Connect server, each a process that ends with the test."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import final

import pyspark

from tests.ks_actors.batch.processes import PATIENCE, below, end_of, ended, of_session

HOME = Path(pyspark.__file__).parent
SOURCES = Path(__file__).parents[4]
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_STOP_SECONDS = 30
# What is sent to tasks as a reference to a module is to be found where they run; tasks are to use no more than this machine has.
CONF = {
    "spark.executorEnv.PYTHONPATH": str(SOURCES),
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
}


@final
class _Program:
    """A Spark program, with all its processes in a session of its own; its output goes to a file, and is checked."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self._reading: asyncio.Task[None] | None = None

    async def says(self, pattern: str) -> str:
        """Wait for a line in which the pattern is; return its first group. Raises AssertionError when it is not said in time."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(PATIENCE):
                while line := await self._process.stdout.readline():
                    with self._log.open("ab") as kept:
                        kept.write(line)
                    if match := re.search(pattern, line.decode(errors="replace")):
                        self._reading = asyncio.ensure_future(self._keep())
                        return match[1]
            why = "it has ended"
        except TimeoutError:
            why = f"it has not within {PATIENCE} s"
        raise AssertionError(f"{self._log.name} was to say {pattern!r}, {why}:\n{end_of(self._log)}")

    async def _keep(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            with self._log.open("ab") as kept:
                kept.write(line)

    async def stop(self) -> None:
        """End it, and check that none of its processes is left."""
        others = of_session(self._process.pid)
        with suppress(ProcessLookupError):  # it was killed
            self._process.terminate()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _STOP_SECONDS)
        for pid in of_session(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await ended(others)
        if self._reading is not None:
            await self._reading
        await self._process.wait()


@asynccontextmanager
async def _running(directory: Path, name: str, program: str, *arguments: str, memory: str = "256m") -> AsyncIterator[_Program]:
    environment = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": memory,
        "SPARK_DAEMON_JAVA_OPTS": _JAVA,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(SOURCES),
    }
    process = await asyncio.create_subprocess_exec(
        str(HOME / "bin" / program),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=directory,
        env=environment,
        start_new_session=True,
    )
    found = _Program(process, directory / f"{name}.log")
    try:
        yield found
    finally:
        await found.stop()


@asynccontextmanager
async def standalone(directory: Path, workers: int = 2) -> AsyncIterator[str]:
    """Run a master, and workers with a core each; return its URL when they have registered."""
    here = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    async with AsyncExitStack() as stack:
        started = _running(directory, "master", "spark-class", "org.apache.spark.deploy.master.Master", *here)
        url = await (await stack.enter_async_context(started)).says(r"Starting Spark master at (spark://\S+)")
        registering = []
        for name in (f"worker-{number}" for number in range(workers)):
            options = [*here, "--cores", "1", "--memory", "512m", "--work-dir", str(directory / name), url]
            started = _running(directory, name, "spark-class", "org.apache.spark.deploy.worker.Worker", *options)
            registering.append((await stack.enter_async_context(started)).says(r"(Successfully registered with master)"))
        await asyncio.gather(*registering)
        yield url


@asynccontextmanager
async def connect_server(directory: Path, port: str = "0") -> AsyncIterator[str]:
    """Run a Spark Connect server with two cores, at any port unless it is said; return its URL."""
    conf = {**CONF, "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": port}
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    program = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2,2]", *options]
    async with _running(directory, "connect", "spark-submit", *program, memory="1g") as server:
        port = await server.says(r"Spark Connect server started at: \S*?:(\d+)")
        yield f"sc://127.0.0.1:{port}"


async def kill_connect_server() -> None:
    """Kill the Spark Connect server that this process runs, with all that it has started."""
    (server,) = [pid for pid, command in below(os.getpid()).items() if "SparkConnectServer" in command]
    started = [server, *below(server)]
    for pid in started:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    await ended(started)
