"""The embedded log in a directory, when its process is killed."""

from __future__ import annotations

import random
from pathlib import Path

from ks_actors.log.embedded import EmbeddedLog
from tests.examples_of import examples
from tests.killed import killed
from tests.ks_actors.log.embedded.writer import PARTITIONS
from tests.ks_actors.log.helpers import join, values_of

ROUNDS = 3


async def test_transactions_are_whole_when_the_process_is_killed(tmp_path: Path) -> None:
    """All acknowledged records are there; of the last transaction there is everything, offset and record in each partition, or nothing."""
    dice = random.Random(4)
    for _ in range(examples(ROUNDS)):
        acknowledged = int((await killed("-m", "tests.ks_actors.log.embedded.writer", str(tmp_path), when=dice.randrange(1, 60)))[-1])
        async with EmbeddedLog(tmp_path) as log:
            await log.transactional_producer("x", client_id="p", timeout_ms=60_000)
            member = await join(log, "g", "t")
            number = (await member.committed(PARTITIONS[:1]))[PARTITIONS[0]].offset
            assert number >= acknowledged
            for partition in PARTITIONS:
                assert [int(value or b"") for value in await values_of(log, partition)] == list(range(number))
