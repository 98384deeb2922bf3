"""The same backfill on a cluster of Spark's, and by Spark Connect."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, final

import msgspec
import pytest

from ks_actors.batch import SparkSettings
from tests.ks_actors.batch.backfill.killed_history import begin
from tests.ks_actors.batch.backfill.test_kills import made, order_of, undisturbed
from tests.ks_actors.batch.driver import Done
from tests.ks_actors.batch.processes import PATIENCE, drive
from tests.ks_actors.batch.spark import reconnecting
from tests.ks_actors.batch.spark.asking import SAID
from tests.ks_actors.batch.spark.cluster import CONF, connect_server, kill_connect_server, standalone

# Six and four JVMs: what they hold beyond the session of other tests are Spark's own ways between processes.
pytestmark = [pytest.mark.spark, pytest.mark.nightly]


async def filled_back_at(directory: Path, settings: SparkSettings) -> Any:
    """Run the backfill in a process of its own, as an app would, and return its result."""
    order = order_of(directory, engine="spark", spark=msgspec.to_builtins(settings))
    await begin(order)
    assert await drive(order, directory / "said") == (0, "")
    return made(msgspec.msgpack.decode((directory / "done").read_bytes(), type=Done), directory)


async def asked(directory: Path, settings: SparkSettings) -> None:
    """See that functions in the middle of a stream, failures and streaming queries are there as they are on one machine."""
    arguments = ["-m", "tests.ks_actors.batch.spark.asking", msgspec.json.encode(settings).decode(), str(directory)]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    said, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert said.decode().splitlines() == SAID, errors.decode()


async def test_a_cluster_with_two_workers_gives_the_results_of_one_process(tmp_path: Path) -> None:
    """A master, and two workers that each run a part of the tasks: record for record, key for key, position for position."""
    async with standalone(tmp_path, workers=2) as url:
        settings = SparkSettings(master=url, driver_memory="512m", conf=CONF)
        got = await filled_back_at(tmp_path, settings)
        apps = [list((tmp_path / f"worker-{number}").glob("app-*/*/stderr")) for number in range(2)]
        await asked(tmp_path, settings)
    assert got == await undisturbed(tmp_path / "undisturbed")
    assert list(map(len, apps)) == [1, 1]


async def test_spark_connect_gives_the_results_of_one_process_and_may_be_started_again(tmp_path: Path) -> None:
    """A server with other processes as clients, and no Java in this one; after a kill connected clients start over, and waiting ones get an error."""
    async with AsyncExitStack() as stack:
        async with connect_server(tmp_path) as url:
            got = await filled_back_at(tmp_path, SparkSettings(master=url))
            await asked(tmp_path, SparkSettings(master=url))
            client = await stack.enter_async_context(connected(SparkSettings(master=url)))
            said = [await client.says() for _ in range(2)]
            await kill_connect_server()
        async with connect_server(tmp_path, url.rpartition(":")[2]):
            client.go_on()
            said += [await client.says() for _ in range(4)]
            await kill_connect_server()
        client.go_on()
        said += await client.rest()
    assert said == reconnecting.SAID
    assert got == await undisturbed(tmp_path / "undisturbed")


@final
class Client:
    """A process that is connected."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def says(self) -> str:
        assert self._process.stdout is not None
        return (await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)).decode().rstrip()

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    async def rest(self) -> list[str]:
        """Return its output until it ends, which must be soon."""
        said, _ = await asyncio.wait_for(self._process.communicate(), PATIENCE)
        assert self._process.returncode == 0
        return said.decode().splitlines()


@asynccontextmanager
async def connected(settings: SparkSettings) -> AsyncIterator[Client]:
    arguments = ["-m", "tests.ks_actors.batch.spark.reconnecting", msgspec.json.encode(settings).decode()]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=pipe, stdout=pipe)
    try:
        yield Client(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
