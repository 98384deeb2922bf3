"""The same backfill on a cluster of Spark's, and by Spark Connect."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ks_actors.batch import SparkSettings

from .asking import SAID
from .cluster import CONF, connect_server, standalone
from .conftest import needs_java
from .driver import Done
from .killed_history import begin
from .processes import PATIENCE, drive
from .test_kills import made, order_of, undisturbed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, needs_java, pytest.mark.timeout(400)]


async def filled_back_at(directory: Path, settings: SparkSettings) -> Any:
    """Run the backfill in a process of its own, as an app would, and return what it has made."""
    order = order_of(directory, engine="spark", spark=msgspec.to_builtins(settings))
    await begin(order)
    assert await drive(order, directory / "said") == (0, "")
    return made(msgspec.msgpack.decode((directory / "done").read_bytes(), type=Done), directory)


async def asked(directory: Path, settings: SparkSettings) -> None:
    """See that functions in the middle of a stream, failures and streaming queries are there as they are on one machine."""
    arguments = ["-m", "tests.batch.asking", msgspec.json.encode(settings).decode(), str(directory)]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    said, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert said.decode().splitlines() == SAID, errors.decode()


async def test_a_cluster_with_two_workers_gives_what_one_process_gives(tmp_path: Path) -> None:
    """A master, and two workers that each run a part of the tasks: record for record, key for key, position for position."""
    async with standalone(tmp_path, workers=2) as url:
        settings = SparkSettings(master=url, driver_memory="512m", conf=CONF)
        got = await filled_back_at(tmp_path, settings)
        apps = [list((tmp_path / f"worker-{number}").glob("app-*/*/stderr")) for number in range(2)]
        await asked(tmp_path, settings)
    assert got == await undisturbed(tmp_path / "undisturbed")
    assert list(map(len, apps)) == [1, 1]


async def test_spark_connect_gives_what_one_process_gives(tmp_path: Path) -> None:
    """A server that other processes are clients of, with no Java in this one."""
    async with connect_server(tmp_path) as url:
        got = await filled_back_at(tmp_path, SparkSettings(master=url))
        await asked(tmp_path, SparkSettings(master=url))
    assert got == await undisturbed(tmp_path / "undisturbed")
