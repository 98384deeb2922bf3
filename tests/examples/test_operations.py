"""`make demo-ops`: a real Kafka, the load, and two instances with their pages, one of two members."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import httpx
import pytest

from tests.kafka.broker import require_kafka
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[2]
ENDS_WITHIN_S = 180


@pytest.mark.extended
@pytest.mark.heavy("a broker, a load and two instances, one of two members")
@pytest.mark.timeout(240)
@pytest.mark.unmeasured
@pytest.mark.parametrize("seconds", [None, "40"])
async def test_both_instances_have_pages_and_tasks_and_get_ready(seconds: str | None) -> None:
    """Each instance and member prints its address, gets ready and gets tasks of its own; all end with code 0, at a signal or after some seconds."""
    require_kafka()
    command = ["-m", "examples.operations", "--rate", "200", *(["--seconds", seconds] if seconds else [])]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(ENDS_WITHIN_S), httpx.AsyncClient(timeout=PATIENCE_S) as client:
            links: list[str] = []
            while len(links) < 3:
                line = (await process.stdout.readline()).decode()
                assert line, "it has ended"
                links += re.findall(r"http://\S+?/(?=#token=)", line)

            async def all_work() -> bool:
                assert process.returncode is None, "the demo has ended before"
                return all([await is_ready(client, link) and await has_tasks(client, link) for link in links])

            await until(all_work)
            if seconds is None:
                process.terminate()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def is_ready(client: httpx.AsyncClient, link: str) -> bool:
    """Ask an instance, which may not listen yet."""
    try:
        return (await client.get(f"{link}ready")).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


async def has_tasks(client: httpx.AsyncClient, link: str) -> bool:
    """Ask an instance for tasks that are no standbys: ready ones may have none before the group is balanced."""
    return any(not task["standby"] for task in (await client.get(f"{link}api/tasks")).json())
