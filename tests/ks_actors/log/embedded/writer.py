"""Write transactions into the log in the directory argv[1] until killed.

Record N goes to each partition, with offset N + 1 of the group; each commit is told to stdout.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from ks_actors.log import NewMember, NewTopic, OffsetAndMetadata, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from tests.ks_actors.log.helpers import outgoing

PARTITIONS = [TopicPartition("t", number) for number in range(3)]


async def main(directory: Path) -> None:
    log = EmbeddedLog(directory)
    await log.start()
    if "t" not in await log.describe_topics():
        await log.create_topics([NewTopic("t", len(PARTITIONS))])
    producer = await log.transactional_producer("x", client_id="p", timeout_ms=60_000)
    member = await log.join(
        "g", NewMember(client_id="c", topics=["t"], user_data=b"", assignor=lambda *_: {}, session_timeout_ms=60_000, rebalance_timeout_ms=60_000)
    )
    await member.event()
    committed = await member.committed(PARTITIONS[:1])
    number = committed[PARTITIONS[0]].offset if committed else 0
    while True:
        if number % 5 == 0:
            await producer.send([outgoing(PARTITIONS[0], b"never")])
            await producer.abort()
        for partition in PARTITIONS:
            await producer.send([outgoing(partition, b"%d" % number + b" " * (number % 3000))])
        number += 1
        await producer.commit({PARTITIONS[0]: OffsetAndMetadata(number)}, member.group)
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
