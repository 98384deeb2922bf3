"""A durable log that is read beside the one that writes it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ks_actors import Batch, ConfigError, LogError
from ks_actors.log import Fetched, IsolationLevel, NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog

WHERE = TopicPartition("t", 0)


def records(first: int, count: int) -> list[Outgoing]:
    return [Outgoing(WHERE, Batch([b"k"] * count, [str(number).encode() for number in range(first, first + count)], [7] * count))]


async def read(log: EmbeddedLog, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> Sequence[Fetched]:
    fetcher = log.fetcher(client_id="reader", isolation=isolation)
    fetcher.assign({WHERE: 0})
    return await fetcher.fetch(max_wait_ms=0)


async def test_a_reader_sees_the_records_at_its_opening(tmp_path: Path) -> None:
    """It takes no lock, and the writer does not notice it."""
    async with EmbeddedLog(tmp_path) as log:
        await log.create_topics([NewTopic("t", 1)])
        producer = await log.producer(client_id="p")
        await producer.send(records(0, 3))
        async with EmbeddedLog(tmp_path, read_only=True) as reader:
            await producer.send(records(3, 2))
            (fetched,) = await read(reader)
            assert (fetched.batch.values, fetched.end_offset) == ([b"0", b"1", b"2"], 3)
        async with EmbeddedLog(tmp_path, read_only=True) as reader:
            (fetched,) = await read(reader)
            assert len(fetched.batch) == 5


async def test_a_reader_ends_nobodys_transaction(tmp_path: Path) -> None:
    """An open transaction stays so, in the log and for the reader, even past its timeout."""
    async with EmbeddedLog(tmp_path / "log") as log:
        await log.create_topics([NewTopic("t", 1)])
        producer = await log.transactional_producer("id", client_id="p", timeout_ms=2_000)
        await producer.send(records(0, 3))
        shutil.copytree(tmp_path / "log", tmp_path / "copy")
        async with EmbeddedLog(tmp_path / "copy", read_only=True) as reader:
            ended = log.fetcher(client_id="writer's", isolation=IsolationLevel.READ_COMMITTED)
            ended.assign({WHERE: 0})
            (marker,) = await ended.fetch(max_wait_ms=30_000)
            assert (len(marker.batch), marker.end_offset) == (0, 4)
            assert await read(reader) == []
            (fetched,) = await read(reader, IsolationLevel.READ_UNCOMMITTED)
            assert len(fetched.batch) == 3
            with pytest.raises(LogError, match="was opened with read_only"):
                await reader.create_topics([NewTopic("u", 1)])
            with pytest.raises(LogError, match="was opened with read_only"):
                await (await reader.producer(client_id="p")).send(records(3, 1))


def test_a_reader_may_be_another_process(tmp_path: Path) -> None:
    """While the writer lives, and after it was killed."""
    code = """
import asyncio, sys
from pathlib import Path
from tests.ks_actors.log.embedded.test_read_only import read
from ks_actors.log.embedded import EmbeddedLog

async def main():
    async with EmbeddedLog(Path(sys.argv[1]), read_only=True) as log:
        print([fetched.next_offset for fetched in await read(log)])

asyncio.run(main())
"""

    async def write_and_look() -> str:
        async with EmbeddedLog(tmp_path) as log:
            await log.create_topics([NewTopic("t", 1)])
            await (await log.producer(client_id="p")).send(records(0, 3))
            command = [sys.executable, "-c", code, str(tmp_path)]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
            return str(done.stdout + done.stderr)

    assert asyncio.run(write_and_look()) == "[3]\n"


async def test_there_has_to_be_something_to_read(tmp_path: Path) -> None:
    """A directory without a log is an error, and is left alone; a log in memory is nobody else's."""
    with pytest.raises(LogError, match="there is no log in"):
        await EmbeddedLog(tmp_path / "none", read_only=True).start()
    assert not (tmp_path / "none").exists()
    with pytest.raises(ConfigError, match="read_only needs a directory"):
        EmbeddedLog(read_only=True)


async def test_deleted_records_are_left_out_and_left_alone(tmp_path: Path) -> None:
    """Records that the writer could not wipe yet are not the reader's to wipe."""
    async with EmbeddedLog(tmp_path) as log:
        await log.create_topics([NewTopic("t", 1)])
        producer = await log.producer(client_id="p")
        await producer.send(records(0, 3))
        await producer.send(records(3, 3))
        await log.delete_records({WHERE: 4})
        async with EmbeddedLog(tmp_path, read_only=True) as reader:
            assert await reader.begin_offsets([WHERE]) == {WHERE: 4}
