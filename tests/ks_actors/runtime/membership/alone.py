"""A member with its poller, without the other actors of an instance."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from actors import Spec
from ks_actors.assignment import GroupAssignor
from ks_actors.log import BaseMembership, IsolationLevel, Membership, NewMember, OffsetAndMetadata, TopicPartition
from ks_actors.runtime import messages as m
from ks_actors.runtime.fetching import Poller, StartPolicy
from ks_actors.runtime.membership import GroupView, Member
from ks_actors.runtime.watch import Coverage, Upstream
from ks_actors.task import TaskParts
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import counting

T = TypeVar("T")


class Gated:
    """A membership that returns committed offsets when the test says."""

    def __init__(self, real: Membership) -> None:
        self._real = real
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def committed(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        self.asked.set()
        await self.gate.wait()
        return await self._real.committed(partitions)


class Alone:
    """A member that is alone in its group, with its poller and a probe in the place of all others."""

    async def begin(self, harness: AppHarness) -> None:
        self.kit, log = harness.kit, harness.log
        self.probe = self.kit.probe(object)
        group = GroupView("process", 60_000)
        new = NewMember(
            client_id="member", topics=("in",), user_data=group.user_data(()), assignor=GroupAssignor.of({0: ["in"]}),
            session_timeout_ms=60_000, rebalance_timeout_ms=60_000,
        )  # fmt: skip
        self.membership = Gated(await log.join("group", new))
        fetcher = log.fetcher(client_id="reader", isolation=IsolationLevel.READ_COMMITTED)
        bury: Callable[[frozenset[str]], Awaitable[None]] = lambda _: asyncio.sleep(0)  # noqa: E731 - nobody is gone
        wall_time = self.kit.wall_time_ms
        topics = TaskParts.of(counting("in_memory"), harness.config).topics
        start = StartPolicy(log, topics, wall_time)
        poller = Poller(
            log, fetcher, poll_ms=10, isolation=IsolationLevel.READ_COMMITTED, start=start, matched=topics.matched_of,
            instance=self.probe, manager=self.probe, member=lambda: self.ref,
            upstream=Upstream(log, topics, Coverage(log, topics, wall_time, IsolationLevel.READ_COMMITTED, tuple)),
        )  # fmt: skip
        self.poller = await self.kit.spawn(Spec(lambda: poller), "the-poller")
        member = Member(
            log, cast("BaseMembership", self.membership), group, start=start, end_transactions=bury,
            instance=self.probe, poller=self.poller, manager=self.probe, state=self.probe, committer=self.probe, collector=self.probe,
        )  # fmt: skip
        self.ref = await self.kit.spawn(Spec(lambda: member), "the-member")
        await self.membership.asked.wait()

    def told(self, kind: type[T]) -> list[T]:
        return [message for message in self.probe.received if isinstance(message, kind)]

    def begin_tasks(self) -> None:
        """Tell the member that its tasks run, as their manager would."""
        for message in self.told(m.OpenTask):
            self.ref.tell(m.TaskReady(message.task, {partition: at.offset for partition, at in message.positions.items()}))

    def fetched(self, partition: TopicPartition) -> int:
        """Return the number of records of a partition that were handed on."""
        return sum(len(one.batch) for message in self.told(m.Records) for one in message.fetched if one.partition == partition)

    async def end(self) -> None:
        await self.kit.stop(self.ref)
        await self.kit.stop(self.poller)
        await self.kit.quiesce()
