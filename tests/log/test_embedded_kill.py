"""The embedded log in a directory, when its process is killed."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from pathlib import Path

from ks_actors.log.embedded import EmbeddedLog
from tests.log.helpers import join, values_of
from tests.log.writer import PARTITIONS

ROUNDS = 6


async def write_and_be_killed(directory: Path, commits: int) -> int:
    """Run a writer, kill it when it has told of `commits` more commits, and return the last one it told of."""
    writer = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.log.writer", str(directory), stdout=asyncio.subprocess.PIPE)
    assert writer.stdout is not None
    told = [await writer.stdout.readline() for _ in range(commits)]
    writer.kill()
    rest = await writer.stdout.read()
    assert await writer.wait() == -signal.SIGKILL
    # The last line may be cut.
    told += rest.split(b"\n")[:-1]
    return int(told[-1])


async def test_transactions_are_whole_when_the_process_is_killed(tmp_path: Path) -> None:
    """All acknowledged records are there; of the last transaction there is everything, offset and record in each partition, or nothing."""
    dice = random.Random(4)
    for _ in range(ROUNDS):
        acknowledged = await write_and_be_killed(tmp_path, dice.randrange(1, 60))
        async with EmbeddedLog(tmp_path) as log:
            await log.transactional_producer("x", client_id="p", timeout_ms=60_000)
            member = await join(log, "g", "t")
            number = (await member.committed(PARTITIONS[:1]))[PARTITIONS[0]].offset
            assert number >= acknowledged
            for partition in PARTITIONS:
                assert [int(value or b"") for value in await values_of(log, partition)] == list(range(number))
