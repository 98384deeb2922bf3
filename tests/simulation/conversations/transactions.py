"""Conversations about transactions, and offsets in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass
from tests.simulation.conversations.talk import LATER, TIME, Answer, Talk, batch, look, make, read, write


class Transactional:
    """A transactional id in a conversation."""

    def __init__(self, talk: Talk, name: str) -> None:
        self._talk = talk
        self._name = f"{talk.name}-{name}"
        self.producer = -1
        self._found = False

    async def init(self, producer: int = -1, epoch: int = -1, timeout_ms: int = 60_000) -> int:
        fields = {"transactional_id": self._name, "transaction_timeout_ms": timeout_ms, "producer_id": producer, "producer_epoch": epoch}
        if not self._found:
            # Nobody coordinates before somebody has asked who does.
            self._found = True
            await self._talk.settle("FindCoordinator", {"key": self._name, "key_type": 1})
        answer = await self._talk.settle("InitProducerId", fields)
        self.producer = max(self.producer, answer["producer_id"])
        return int(answer["producer_epoch"])

    def _fields(self, epoch: int) -> Answer:
        return {"transactional_id": self._name, "producer_id": self.producer, "producer_epoch": epoch}

    async def add(self, epoch: int, topic: str, partition: int = 0) -> None:
        fields = {**self._fields(epoch), "topics": [{"name": topic, "partitions": [partition]}]}
        await self._talk.settle("AddPartitionsToTxn", fields, lambda answer: [answer["results"][0]["results"][0]["error_code"]])

    async def add_offsets(self, epoch: int, group: str) -> None:
        await self._talk.settle("AddOffsetsToTxn", {**self._fields(epoch), "group_id": group})

    async def commit_offset(self, epoch: int, group: str, topic: str, offset: int, generation: int = -1, member: str = "") -> None:
        one = {"partition": 0, "offset": offset, "leader_epoch": -1, "metadata": "m"}
        fields = {
            **self._fields(epoch), "group_id": group, "generation_id": generation, "member_id": member,
            "topics": [{"name": topic, "partitions": [one]}],
        }  # fmt: skip
        await self._talk.settle("TxnOffsetCommit", fields, lambda answer: [answer["topics"][0]["partitions"][0]["error_code"]])

    async def end(self, epoch: int, *, commit: bool) -> None:
        await self._talk.settle("EndTxn", {**self._fields(epoch), "committed": commit})

    async def describe(self) -> str:
        """Note the state as soon as no markers are left to be written, and return it."""

        async def look() -> Answer | None:
            answer = await self._talk.ask("DescribeTransactions", {"transactional_ids": [self._name]}, quietly=True)
            (one,) = answer["transactions"]
            return None if one["state"].startswith("Prepare") or one["error_code"] in LATER else answer

        answer = await self._talk.until(look, f"{self._name} without markers to be written")
        self._talk.note("DescribeTransactions", answer)
        return str(answer["transactions"][0]["state"])

    async def expired(self) -> None:
        """Wait until the transaction has ended by itself, and note how."""

        async def look() -> bool | None:
            (one,) = (await self._talk.ask("DescribeTransactions", {"transactional_ids": [self._name]}, quietly=True))["transactions"]
            return one["state"] != "Ongoing" or None

        await self._talk.until(look, f"{self._name} whose transaction has timed out")
        await self.describe()

    async def write(self, topic: str, epoch: int, sequence: int, count: int = 1, partition: int = 0, name: str | None = None) -> None:
        raw = batch(count, producer=self.producer, epoch=epoch, sequence=sequence, transactional=True)
        await write(self._talk, topic, raw, partition, transactional_id=name or self._name)


async def of_transactions(talk: Talk) -> None:
    """Begin, write, commit and abort; come with old epochs, to what was not added, and with another name."""
    topic, one = await make(talk, "t", 2), Transactional(talk, "x")
    await talk.settle("FindCoordinator", {"key": f"{talk.name}-x", "key_type": 1})
    await one.init(timeout_ms=0)
    await one.init(timeout_ms=1_000_000)
    epoch = await one.init()
    await one.end(epoch, commit=True)
    await one.write(topic, epoch, 0)
    await one.add(epoch, topic)
    await one.add(epoch, topic)
    await one.add(epoch, talk.topic("none"))
    await one.add(epoch + 1, topic)
    await one.write(topic, epoch, 0, 2)
    await one.write(topic, epoch, 0, 2)
    await one.write(topic, epoch, 5)
    await one.write(topic, epoch, 0, partition=1)
    await one.write(topic, epoch, 2, name=f"{talk.name}-y")
    await look(talk, topic, -1, committed=True)
    await look(talk, topic, -1)
    await read(talk, topic, 0, committed=True)
    await one.describe()
    await one.end(epoch, commit=True)
    await one.describe()
    await one.end(epoch, commit=True)
    await one.end(epoch, commit=False)
    await one.add(epoch, topic)
    await one.write(topic, epoch, 2)
    await one.end(epoch, commit=False)
    await one.describe()
    await read(talk, topic, 0, committed=True)
    await read(talk, topic, 0)
    await read(talk, topic, 3, committed=True)
    await look(talk, topic, -1, committed=True)


async def of_fencing(talk: Talk) -> None:
    """Take the epoch of a producer, go on after a fault, and time out."""
    topic, one = await make(talk, "t"), Transactional(talk, "x")
    await one.init()
    await one.add(0, topic)
    await one.init(one.producer, 0)
    await one.describe()
    for epoch in (1, 1, 0):
        await one.init(one.producer, epoch)
    await one.init()
    await one.init(one.producer, 2)
    await one.init(one.producer + 77, 3)
    await one.add(3, topic)
    await one.write(topic, 3, 0, 3)
    await one.write(topic, 2, 0)
    await one.init(one.producer, 2)
    await one.describe()
    await one.init(one.producer, 3)
    await one.write(topic, 3, 3)
    await one.init()
    await one.add(5, topic)
    await one.write(topic, 5, 0)
    await one.init()
    await one.describe()
    epoch = await one.init(timeout_ms=300)
    await one.add(epoch, topic)
    await one.expired()
    await one.add(epoch, topic)
    await one.init(one.producer, epoch)
    await one.describe()
    await read(talk, topic, 0, committed=True)


async def of_aborted_ranges(talk: Talk) -> None:
    """Fetch records of transactions that are open, committed and aborted between one another."""
    topic, one, other = await make(talk), Transactional(talk, "x"), Transactional(talk, "y")
    for each in (one, other):
        await each.init()
        await each.add(0, topic)
    await one.write(topic, 0, 0, 2)
    await other.write(topic, 0, 0)
    await write(talk, topic, batch(1))
    await one.write(topic, 0, 2)
    await one.end(0, commit=False)
    await one.describe()
    await look(talk, topic, -1, committed=True)
    await look(talk, topic, TIME, committed=True)
    for offset in (0, 2, 3):
        await read(talk, topic, offset, committed=True)
    await one.add(0, topic)
    await one.write(topic, 0, 3)
    await other.end(0, commit=False)
    await other.describe()
    for offset in range(9):
        await read(talk, topic, offset, committed=True)
    for limit in (90, 200, 300):
        await read(talk, topic, 0, committed=True, limit=limit)
    await one.end(0, commit=True)
    await one.describe()
    for offset in (0, 3, 5, 6, 7):
        await read(talk, topic, offset, committed=True)
    asked = [{"name": topic, "partitions": [{"partition": 0, "offset": 4}]}]
    await talk.ask("DeleteRecords", {"topics": asked, "timeout_ms": 5_000})
    await read(talk, topic, 4, committed=True)


async def of_strangers(talk: Talk) -> None:
    """Come with ids of transactions and producers that nobody knows, or that are empty."""
    topic, one = await make(talk), Transactional(talk, "x")
    for key, kind in (("", 0), ("", 1)):
        await talk.settle("FindCoordinator", {"key": key, "key_type": kind})
    await talk.settle("FindCoordinator", {"key": f"{talk.name}-x", "key_type": 1})
    await talk.ask("DescribeTransactions", {"transactional_ids": [f"{talk.name}-none", ""]})
    stranger = {"transactional_id": f"{talk.name}-none", "producer_id": 5, "producer_epoch": 0}
    added = {**stranger, "topics": [{"name": topic, "partitions": [0]}]}
    await talk.settle("AddPartitionsToTxn", added, lambda answer: [answer["results"][0]["results"][0]["error_code"]])
    await talk.settle("AddOffsetsToTxn", {**stranger, "group_id": f"{talk.name}-g"})
    await talk.settle("EndTxn", {**stranger, "committed": True})
    await talk.settle("InitProducerId", {"transactional_id": "", "transaction_timeout_ms": 9, "producer_id": -1, "producer_epoch": -1})
    await one.init()
    await one.end(0, commit=False)
    await one.describe()
    await one.init(one.producer, -1)
    await one.init(-1, 0)
    await one.add(0, topic)
    await one.add(0, topic, 9)
    await one.write(topic, 0, 5)
    await one.write(topic, 0, 0)
    await one.describe()


async def of_offsets(talk: Talk) -> None:
    """Commit offsets of a group, alone and in transactions."""
    topic, one, group = await make(talk, "t", 2), Transactional(talk, "x"), f"{talk.name}-g"
    await talk.settle("FindCoordinator", {"key": group, "key_type": 0})

    async def commit(offset: int, *, generation: int = -1, member: str = "", name: str = topic, metadata: str | None = "m") -> None:
        asked = [{"partition": 0, "offset": offset, "leader_epoch": 3, "metadata": metadata}]
        fields = {"group_id": group, "generation_id": generation, "member_id": member, "topics": [{"name": name, "partitions": asked}]}
        await talk.settle("OffsetCommit", fields, lambda answer: [answer["topics"][0]["partitions"][0]["error_code"]])

    async def fetch(*, stable: bool = True) -> None:
        fields = {
            "group_id": group,
            "topics": [{"name": topic, "partitions": [0, 1]}, {"name": talk.topic("none"), "partitions": [0]}],
            "require_stable": stable,
        }
        await talk.settle("OffsetFetch", fields)

    await fetch()
    await commit(5)
    await commit(6, metadata=None)
    await commit(7, metadata="x" * 5_000)
    await commit(7, name=talk.topic("none"))
    await commit(7, generation=3, member="stranger")
    await fetch()
    await talk.settle("OffsetFetch", {"group_id": group, "topics": None, "require_stable": True})
    epoch = await one.init()
    await one.commit_offset(epoch, group, topic, 8)
    await one.add_offsets(epoch, group)
    await one.commit_offset(epoch, group, topic, 8)
    await one.commit_offset(epoch + 1, group, topic, 9)
    await fetch()
    await fetch(stable=False)
    await one.end(epoch, commit=True)
    await one.describe()
    await fetch()
    await one.add_offsets(epoch, group)
    await one.commit_offset(epoch, group, topic, 9)
    await one.end(epoch, commit=False)
    await one.describe()
    await fetch()
    await one.add_offsets(epoch, group)
    await one.commit_offset(epoch, group, topic, 10, generation=4, member="stranger")
    await one.end(epoch, commit=True)
    await talk.ask("DescribeGroups", {"groups": [group, f"{group}-none"], "include_operations": True})
