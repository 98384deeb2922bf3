"""Helpers for tests of any log: everything here goes through the port."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ks_actors.log import (
    Assigned,
    Fetched,
    Fetcher,
    GroupMetadata,
    IsolationLevel,
    Log,
    Lost,
    MemberAssignment,
    MemberInfo,
    Membership,
    NewMember,
    NewTopic,
    Outgoing,
    Revoked,
    TopicPartition,
    Writer,
)
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.records._batch import Batch
from tests.waiting import PATIENCE_S, soon

COMMITTED = IsolationLevel.READ_COMMITTED
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
NOBODY = GroupMetadata("", -1, "")
PATIENCE_MS = PATIENCE_S * 1_000


class Read(NamedTuple):
    """A record, and its place."""

    partition: TopicPartition
    offset: int
    key: bytes | None
    value: bytes | None


def batch(*values: bytes | None, keys: Sequence[bytes | None] | None = None, timestamps: Sequence[int] | None = None) -> Batch:
    count = len(values)
    return Batch(list(keys or [b"k"] * count), list(values), list(timestamps if timestamps is not None else range(count)))


def outgoing(partition: TopicPartition, *values: bytes | None) -> Outgoing:
    return Outgoing(partition, batch(*values))


async def new_topic(log: Log, partitions: int = 1, **configs: str) -> list[TopicPartition]:
    """Create a topic of a name of its own."""
    name = f"topic-{uuid.uuid4().hex}"
    await log.create_topics([NewTopic(name, partitions, {key.replace("_", "."): value for key, value in configs.items()})])
    return [TopicPartition(name, number) for number in range(partitions)]


async def write(producer: Writer, partition: TopicPartition, *values: bytes | None) -> int:
    (behind,) = await producer.send([outgoing(partition, *values)])
    return behind


async def fetch_one(fetcher: Fetcher, *, max_records: int = 10_000) -> Fetched:
    """Wait for records of the one partition that has some."""
    (fetched,) = await fetcher.fetch(max_wait_ms=PATIENCE_MS, max_records=max_records)
    return fetched


async def read_all(
    log: Log, partition: TopicPartition, isolation: IsolationLevel = COMMITTED, *, start: int | None = None
) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of all that can be read."""
    begin = (await log.begin_offsets([partition]))[partition] if start is None else start
    end = (await log.end_offsets([partition], isolation))[partition]
    fetcher = log.fetcher(client_id="reader", isolation=isolation)
    fetcher.assign({partition: begin})
    found: list[tuple[int, bytes | None, bytes | None]] = []
    while begin < end:
        fetched = await fetch_one(fetcher)
        found += zip(fetched.batch.offsets, fetched.batch.keys, fetched.batch.values, strict=True)
        begin = fetched.next_offset
    await fetcher.close()
    return found


async def read_until(log: Log, partitions: Sequence[TopicPartition], enough: Callable[[list[Read]], object]) -> list[Read]:
    """Read committed records until they are enough, and then all that there are by then."""
    places = dict(await log.begin_offsets(partitions))
    fetcher = log.fetcher(client_id="reader", isolation=COMMITTED)
    fetcher.assign(places)
    found: list[Read] = []

    async def read_on() -> None:
        for fetched in await fetcher.fetch(max_wait_ms=PATIENCE_MS):
            records = fetched.batch
            found.extend(Read(fetched.partition, *each) for each in zip(records.offsets, records.keys, records.values, strict=True))
            places[fetched.partition] = fetched.next_offset

    try:
        async with asyncio.timeout(PATIENCE_S):
            while not enough(found):
                await read_on()
            ends = await log.end_offsets(partitions, COMMITTED)
            while any(places[partition] < end for partition, end in ends.items()):
                await read_on()
    except TimeoutError as error:
        raise AssertionError(f"not enough records within {PATIENCE_S} s, but {len(found)}; the last ones: {found[-5:]}") from error
    await fetcher.close()
    return found


async def values_of(log: Log, partition: TopicPartition, isolation: IsolationLevel = COMMITTED) -> list[bytes | None]:
    return [value for _, _, value in await read_all(log, partition, isolation)]


def by_turns(members: Sequence[MemberInfo], partitions: Mapping[str, int]) -> Mapping[str, MemberAssignment]:
    """Deal all partitions out, and return to each member its own data."""
    places = [TopicPartition(topic, number) for topic, count in sorted(partitions.items()) for number in range(count)]
    return {member.member_id: MemberAssignment(tuple(places[index :: len(members)]), member.user_data) for index, member in enumerate(members)}


async def join(
    log: Log, group: str, *topics: str, user_data: bytes = b"", rebalance_timeout_ms: int = 60_000, instance_id: str | None = None,
    takes_over: bool = False,
) -> Membership:  # fmt: skip
    return await log.join(
        group,
        NewMember(
            client_id="client",
            topics=topics,
            user_data=user_data,
            assignor=by_turns,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=rebalance_timeout_ms,
            instance_id=instance_id,
            takes_over=takes_over,
        ),
    )


async def assigned(member: Membership) -> Assigned:
    event = await soon(member.event())
    assert isinstance(event, Assigned), event
    return event


async def revoked(member: Membership) -> Revoked:
    event = await soon(member.event())
    assert isinstance(event, Revoked), event
    return event


async def lost(member: Membership) -> Lost:
    event = await soon(member.event())
    assert isinstance(event, Lost), event
    return event


async def settle(*members: Membership) -> list[Assigned]:
    """Let members go through rebalances until they are of one generation; return the assignments of each in it."""
    latest: dict[int, Assigned] = {}
    settled: asyncio.Future[list[Assigned]] = asyncio.get_running_loop().create_future()

    async def follow(index: int, member: Membership) -> None:
        while True:
            event = await member.event()
            if isinstance(event, Revoked):
                latest.pop(index, None)
                member.revoked()
            elif isinstance(event, Assigned):
                latest[index] = event
                if len(latest) == len(members) and len({one.group.generation for one in latest.values()}) == 1 and not settled.done():
                    settled.set_result([latest[place] for place in range(len(members))])
                    return

    followers = [asyncio.ensure_future(follow(index, member)) for index, member in enumerate(members)]
    try:
        waited: list[asyncio.Future[Any]] = [settled, *followers]
        await asyncio.wait(waited, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        for follower in followers:
            if follower.done():
                follower.result()
        assert settled.done(), f"no common generation, but {latest}"
        return settled.result()
    finally:
        for follower in followers:
            follower.cancel()
        await asyncio.gather(*followers, return_exceptions=True)


def group_name() -> str:
    return f"group-{uuid.uuid4().hex}"


def abandon(log: EmbeddedLog) -> None:
    """Let go of a log's directory as if its process had been killed: nothing is ended before."""
    log._broker.stop()
    log._groups.stop()
    log._storage.close()


class Clock:
    """A time of day that tests choose, in ms since the epoch."""

    def __init__(self) -> None:
        self.now = 1_000_000_000

    def __call__(self) -> int:
        return self.now
