"""Conversations about records: writing, fetching and looking for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.batches import Record, build, sealed

if TYPE_CHECKING:
    pass
from tests.simulation.conversations.talk import TIME, Answer, Talk, batch, look, make, read, write


async def of_writes(talk: Talk) -> None:
    """Write, repeat, leave gaps, and break rules."""
    topic = await make(talk, "t", 1, max_message_bytes="1000")
    producer = (
        await talk.settle("InitProducerId", {"transactional_id": None, "transaction_timeout_ms": 1_000, "producer_id": -1, "producer_epoch": -1})
    )["producer_id"]
    for epoch, sequence, count in (
        (0, 0, 2),
        (0, 0, 2),
        (0, 2, 1),
        (0, 2, 1),
        (0, 7, 1),
        (0, 0, 2),
        (0, 1, 1),
        (1, 3, 1),
        (1, 0, 3),
        (0, 3, 1),
        (1, 3, 1),
    ):
        await write(talk, topic, batch(count, producer=producer, epoch=epoch, sequence=sequence))
    for sequence in (4, 5, 6, 7, 8, 9, 5, 4):
        # The last five batches are remembered.
        await write(talk, topic, batch(1, producer=producer, epoch=1, sequence=sequence))
    await write(talk, topic, batch(1, producer=producer + 1_000, epoch=0, sequence=5))
    await write(talk, topic, batch(1))
    await write(talk, topic, batch(1, size=2_000))
    broken = bytearray(batch(1))
    broken[-1] ^= 1
    await write(talk, topic, bytes(broken))
    await write(talk, topic, batch(1), 5)
    await write(talk, talk.topic("none"), batch(1))
    await write(talk, topic, batch(1), acks=1)
    compacted = await make(talk, "c", 1, cleanup_policy="compact")
    await write(talk, compacted, sealed(build((Record(0, TIME, None, b"v", ()),), 1, 0), -1, -1, -1))
    await write(talk, compacted, batch(1))


async def of_fetches(talk: Talk) -> None:
    """Fetch with sessions and without, from wrong places, and in small pieces."""
    topic = await make(talk, "t", 2)
    for count in (3, 1, 5):
        await write(talk, topic, batch(count))
    for offset in (0, 1, 3, 8, 9, 10, -1):
        await read(talk, topic, offset)
    await read(talk, topic, 0, limit=1)
    await read(talk, topic, 0, limit=200)
    await read(talk, topic, 3, most=1)
    await read(talk, topic, 0, partition=7)
    await read(talk, talk.topic("none"), 0)
    for epoch in (0, 1, 5):
        await read(talk, topic, 3, epoch=epoch)
    session = (await read(talk, topic, 3, session=(0, 0)))["session_id"]
    await read(talk, topic, 3, session=(session, 1), asks=False)
    await read(talk, topic, 9, session=(session, 2))
    await read(talk, topic, 0, session=(session, 3), asks=False)
    await read(talk, topic, 0, partition=1, session=(session, 4))
    await write(talk, topic, batch(1))
    await read(talk, topic, 0, session=(session, 5), asks=False)
    await read(talk, topic, 0, session=(session, 4), asks=False)
    await read(talk, topic, 0, session=(session + 1, 6), asks=False)
    await read(talk, topic, 0, session=(session, -1), asks=False)
    await read(talk, topic, 0, session=(session, 6), asks=False)
    for timestamp in (-1, -2, 0, TIME, TIME + 2, TIME + 4, TIME + 99):
        await look(talk, topic, timestamp)
    await look(talk, topic, -1, replica=-2)
    await look(talk, topic, -1, partition=9)
    for epoch in (0, 1):
        asked = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}]
        await talk.ask("OffsetForLeaderEpoch", {"replica_id": -1, "topics": [{"topic": topic, "partitions": asked}]})
    for offset in (4, 2, 99, -1):
        await talk.ask("DeleteRecords", {"topics": [{"name": topic, "partitions": [{"partition": 0, "offset": offset}]}], "timeout_ms": 5_000})
    await read(talk, topic, 3)
    await look(talk, topic, -2)


async def of_deleted_records(talk: Talk) -> None:
    """Delete the first records, and read and look from before and behind them."""
    topic = await make(talk, "t", 2)
    for count in (3, 2):
        await write(talk, topic, batch(count))

    async def delete(name: str, partition: int, offset: int) -> None:
        asked = [{"name": name, "partitions": [{"partition": partition, "offset": offset}]}]
        await talk.ask("DeleteRecords", {"topics": asked, "timeout_ms": 5_000})

    for offset in (0, 1, 4, 5, 6, -2):
        await delete(topic, 0, offset)
        for start in (0, 1, 4, 5):
            await read(talk, topic, start)
        for timestamp in (-1, -2, TIME, TIME + 1):
            await look(talk, topic, timestamp)
        await epoch_end(talk, topic, 0)
    await write(talk, topic, batch(1))
    await read(talk, topic, 5, epoch=0)
    await delete(topic, 1, -1)
    await delete(topic, 7, 1)
    await delete(talk.topic("none"), 0, 1)
    compacted = await make(talk, "c", 1, cleanup_policy="compact")
    await write(talk, compacted, batch(2))
    await delete(compacted, 0, 1)


async def epoch_end(talk: Talk, topic: str, epoch: int, *, partition: int = 0, current: int = -1) -> None:
    """Ask where a leader epoch ends."""
    asked = [{"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}]
    await talk.ask("OffsetForLeaderEpoch", {"replica_id": -1, "topics": [{"topic": topic, "partitions": asked}]})


async def of_leader_epochs(talk: Talk) -> None:
    """Ask for the ends of epochs that were, were not, and are to come."""
    topic = await make(talk)
    for epoch in (-1, 0, 1):
        await epoch_end(talk, topic, epoch)
    await write(talk, topic, batch(2))
    for epoch in (-1, 0, 1, 7):
        await epoch_end(talk, topic, epoch)
    await epoch_end(talk, topic, 0, partition=3)
    await epoch_end(talk, talk.topic("none"), 0)
    for offset, epoch in ((0, 0), (1, 0), (2, 0), (3, 0), (2, 4), (0, -1)):
        await read(talk, topic, offset, epoch=epoch)


async def of_times(talk: Talk) -> None:
    """Look for offsets by time, in an empty log and in one whose times go up and down."""
    topic = await make(talk)
    for timestamp in (-1, -2, 0, TIME):
        await look(talk, topic, timestamp)
    for times in ((5, 3, 9), (2,), (7, 7, 20)):
        records = tuple(Record(index, TIME + time, b"k", b"v", ()) for index, time in enumerate(times))
        await write(talk, topic, sealed(build(records, len(times), 0), -1, -1, -1))
    for timestamp in (0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 21):
        await look(talk, topic, TIME + timestamp)
        await look(talk, topic, TIME + timestamp, committed=True)


async def of_sessions(talk: Talk) -> None:
    """Fetch from several partitions in a session, take some of them away, and share the room for bytes."""
    topic, other = await make(talk, "t", 3), await make(talk, "u")
    for partition in range(3):
        await write(talk, topic, batch(1, size=400), partition)
    await write(talk, other, batch(1, size=400))

    async def fetch(
        session: int, epoch: int, asked: Answer, forgotten: dict[str, list[int]] | None = None, *, most: int = 1 << 20, limit: int = 1 << 20
    ) -> int:
        topics = [
            {
                "topic": name,
                "partitions": [
                    {"partition": number, "current_leader_epoch": -1, "fetch_offset": offset, "last_fetched_epoch": -1, "max_bytes": limit}
                    for number, offset in offsets
                ],
            }
            for name, offsets in asked.items()
        ]
        gone = [{"topic": name, "partitions": numbers} for name, numbers in (forgotten or {}).items()]
        fields = {
            "replica_id": -1, "min_bytes": 1, "max_bytes": most, "session_id": session, "session_epoch": epoch, "topics": topics, "forgotten": gone,
            "rack_id": "",
        }  # fmt: skip
        return int((await talk.ask("Fetch", fields))["session_id"])

    all_ = {topic: [(0, 0), (1, 0), (2, 0)], other: [(0, 0)]}
    await fetch(0, -1, all_)
    await fetch(0, -1, all_, most=1_000)
    await fetch(0, -1, all_, most=100)
    await fetch(0, -1, all_, limit=100)
    session = await fetch(0, 0, all_, most=1_000)
    await fetch(session, 1, {}, most=1_000)
    await fetch(session, 2, {}, most=100)
    await fetch(session, 3, {topic: [(0, 1), (1, 1)]}, {topic: [2]})
    await fetch(session, 4, {other: [(0, 1)]})
    await fetch(session, 5, {})
    await fetch(session, 6, {topic: [(0, 9)]})
    await fetch(session, 7, {})
    await fetch(session, 8, {topic: [(0, 1), (9, 0)], talk.topic("none"): [(0, 0)]})
    await fetch(session, 9, {})
    await fetch(session, 10, {}, {topic: [0, 1, 9], other: [0], talk.topic("none"): [0]})
    await fetch(session, 11, {})
    await fetch(session, 0, {topic: [(0, 0)]})
    await fetch(session, 1, {})
    await fetch(77_777, 1, {})
    await fetch(0, 5, {topic: [(0, 0)]})
    await fetch(0, 0, {})


async def of_wrong_writes(talk: Talk) -> None:
    """Write with impossible acks, sequences and producers, and more than one batch at once."""
    topic = await make(talk, "t", 2)
    for acks in (2, -2):
        await write(talk, topic, batch(1), acks=acks)
    await write(talk, topic, batch(1) + batch(1))
    await write(talk, topic, batch(1)[:-3])
    await write(talk, topic, batch(1), -1)
    await write(talk, topic, batch(1), transactional_id=talk.topic("stranger"))
    await write(talk, topic, batch(1, producer=5, epoch=0, sequence=0, transactional=True))
    await write(talk, topic, batch(1, producer=9_999_999, epoch=3, sequence=0x7FFFFFFE))
    for sequence, count in ((0x7FFFFFFF, 2), (1, 1), (0, 1), (2, 1)):
        await write(talk, topic, batch(count, producer=9_999_999, epoch=3, sequence=sequence))
    await read(talk, topic, 0)
