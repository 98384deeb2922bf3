"""One of each kind of request to a broker, whose classes it then has loaded: `python -m tests.kafka.warm BOOTSTRAP`."""

from __future__ import annotations

import asyncio
import sys

from ks_actors.log import OffsetAndMetadata
from ks_actors.log.kafka import KafkaLog
from tests.ks_actors.log.helpers import assigned, group_name, join, new_topic, outgoing, read_all, write


async def main(bootstrap: str) -> None:
    """Write, read, join a group, commit and abort transactions, change topics."""
    async with KafkaLog(bootstrap) as log:
        one, two = await new_topic(log, 2)
        producer = await log.producer(client_id="warm")
        await producer.send([outgoing(one, b"a", b"b"), outgoing(two, b"c")])
        group = group_name()
        member = await join(log, group, one.topic)
        event = await assigned(member)
        await member.commit({one: OffsetAndMetadata(1)})
        transactional = await log.transactional_producer(group, client_id="warm", timeout_ms=60_000)
        for end in ("commit", "abort", "commit"):
            await write(transactional, one, b"d")
            if end == "abort":
                await transactional.abort()
            else:
                await transactional.commit({one: OffsetAndMetadata(2)}, event.group)
        assert len(await read_all(log, one)) > 0
        await log.set_configs({one.topic: {"max.message.bytes": "100000"}})
        await log.describe_topics()
        await log.group_members(group)
        await log.delete_records({one: 1})
        await member.leave()
        await log.delete_topics([one.topic])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
