"""Whole apps on simulated brokers: random topologies, faults of the cluster, and instances that come, go and crash."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ks_actors import App
from ks_actors.runtime.shared import InstanceState
from ks_actors.testing import TestRecord
from ks_actors.testing._app_kit import AppKit
from ks_actors.topology import SourceNode
from tests.liveness.ledger import Wrong
from tests.liveness.run import START_MS, Run, live
from tests.liveness.topology import build
from tests.liveness.watch import LOOK_S
from tests.simulation.app_plan import GENERATION, AppsPlan, draw_apps
from tests.simulation.batches import Record
from tests.simulation.batches import build as batch_of
from tests.simulation.cluster import NO_LEADER, Cluster, draw_fencing
from tests.simulation.faults import Faults
from tests.simulation.instances import Instance
from tests.simulation.reading import expected_of
from tests.simulation.running import quiet
from tests.simulation.seams import simulated
from tests.simulation.trace import Trace
from tests.simulation.transactions import expire

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from ks_actors import StreamsConfig
    from ks_actors.log import Outgoing
    from tests.simulation.cluster import Partition

_SITES: Final = range(1, 100)
_CAUGHT_UP_S: Final = 120.0
_GATHERED_S: Final = 2.0
_GENERATION_S: Final = 5.0
_LOOK_FOR_GENERATION_S: Final = 0.005
_ENDS: Final = frozenset({InstanceState.ERROR, InstanceState.NOT_RUNNING})


class Author:
    """Write records to the logs of leaders, as a producer that never fails: one that is lost in an election is written again."""

    def __init__(self, cluster: Cluster, codec: int) -> None:
        self._cluster = cluster
        self._codec = codec
        self._turns: dict[str, asyncio.Lock] = {}

    async def send(self, batches: Sequence[Outgoing]) -> None:
        """Write, and return when all consumers may read it."""
        # The records of a topic keep the order in which they were made.
        async with self._turns.setdefault(batches[0].partition.topic, asyncio.Lock()):
            for each in batches:
                await self._write(each)

    async def _write(self, sent: Outgoing) -> None:
        columns = zip(sent.batch.timestamps, sent.batch.keys, sent.batch.values, strict=True)
        records = tuple(Record(offset, *each, ()) for offset, each in enumerate(columns))
        raw = batch_of(records, len(records), self._codec)
        partition = self._cluster.partition(sent.partition)
        assert partition is not None
        while True:
            while not self._able(partition):
                await asyncio.sleep(0.05)
            log = partition.log
            written = log.append(raw, partition.epoch)
            self._cluster.replicate(partition)
            log.wake()
            while any(one is written for one in reversed(partition.log.batches)):
                if partition.log.safe >= written.behind or partition.log.high >= written.behind:
                    return
                await asyncio.sleep(0.01)

    def _able(self, partition: Partition) -> bool:
        leader = self._cluster.brokers.get(partition.leader)
        return partition.leader != NO_LEADER and leader is not None and leader.connected and partition.name in leader.led


class Apps(Run):
    """One run: instances of an app on a cluster that fails, and heals."""

    plan: AppsPlan

    def __init__(self, plan: AppsPlan) -> None:
        super().__init__(plan)
        self.trace = Trace(asyncio.get_running_loop().time)
        self.cluster = Cluster(plan.brokers, Random(f"cluster {plan.seed}"), self.trace, plan.manners)
        self.cluster.fencing = draw_fencing(plan.seed)
        self.kit = AppKit(seed=plan.seed, wall_clock_ms=START_MS)
        self.disk = Path()
        self._disks = Random(f"disks {plan.seed}")
        self._sites = iter(_SITES)
        self._dead: list[asyncio.Future[None]] = []
        self._instances: list[Instance] = []
        self._count = 0
        self._strict_from = plan.healthy_at + plan.strict_after
        self._topology = build(plan, self.ledger, self._spend)

    def note(self, what: str) -> None:
        """Remember an event, in the trace, too."""
        super().note(what)
        self.trace.note(what)

    # --- what instances use -------------------------------------------------------------------------------------------------------------

    def new_site(self) -> int:
        """Return the place of another process."""
        return next(self._sites)

    def keeps_disk(self) -> bool:
        """Return whether a crash leaves the disk."""
        return self._disks.random() < 0.6

    def make_app(self, config: StreamsConfig) -> App:
        """Return an app of the plan."""
        return App(self._topology, config, system=self.kit, task_priority=self._priorities())

    def another(self) -> Instance:
        """Return one more instance."""
        self._count += 1
        return Instance(self, self._count)

    def bury(self, rest: Coroutine[Any, Any, None]) -> None:
        """Have the rest of a dead process end by itself."""
        self._dead.append(asyncio.ensure_future(rest))

    def check_fetches(self, app: App) -> None:
        """Raise Wrong if the watchdog had to begin a fetch anew."""
        mended = app._metrics.stalls_mended
        if mended:
            raise Wrong(f"{mended} fetches of {app.config.client_id} stood still: {app.waiting()}")

    # --- the run ------------------------------------------------------------------------------------------------------------------------

    async def main(self) -> None:
        """Do it. Raises Standstill, Wrong, and the final error of an app."""
        plan = self.plan
        for lane in plan.lanes:
            for topic in (*lane.topics, f"{lane.name}-out"):
                self.cluster.make(topic, lane.partitions, plan.replication)
        self.cluster.settle()
        with simulated(self.cluster.network, Random(f"seams {plan.seed}")), tempfile.TemporaryDirectory(prefix="ks-apps-") as disk:
            self.disk = Path(disk)
            self.cluster.begin(expire(self.cluster))
            try:
                async with self.kit:
                    self.kit.works_by(lambda: self.spent)
                    await self._run_all()
            except BaseException as error:
                error.add_note(self.trace.told())
                raise
            finally:
                await self.cluster.close()
        for lane in plan.lanes:
            self.ledger.check(lane, self._written(f"{lane.name}-out"), exactly_once=plan.exactly_once)

    async def _run_all(self) -> None:
        plan = self.plan
        self._instances = [self.another() for _ in range(plan.instances)]
        self._members = [*self._instances]  # type: ignore[list-item]  # what a run uses of a harness they have, too
        faults = Faults(self.cluster, Random(f"faults {plan.seed}"), plan.kinds, until=plan.healthy_at, sites=_SITES)
        lanes = {topic: lane for lane in plan.lanes for topic in lane.topics}
        author = Author(self.cluster, plan.codec)
        work = [asyncio.ensure_future(each.start()) for each in self._instances]
        work += [asyncio.ensure_future(self._feed(author, lanes[burst.topic], burst)) for burst in plan.bursts]
        work += [asyncio.ensure_future(self._meet(each)) for each in plan.faults]
        if plan.kinds:
            work += [asyncio.ensure_future(faults.befall()), asyncio.ensure_future(faults.heal())]
        try:
            first: Any = self._instances[0]
            await self._look_on(first, work)
            await self._caught_up()
            # What punctuators gather comes by the clock.
            await asyncio.sleep(_GATHERED_S)
            await self._caught_up()
            for each in self._instances:
                await each.close()
        finally:
            for one in work:
                one.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            await asyncio.gather(*(each.close() for each in self._instances), *self._dead, return_exceptions=True)

    async def _meet(self, fault: Any) -> None:
        if fault.topic == GENERATION:
            await asyncio.sleep(fault.begin)
            await self._next_generation()
            fault = replace(fault, begin=fault.size)
        instance: Any = self._random.choice(self._instances)
        await self._befall(instance, fault)
        loop = asyncio.get_running_loop()
        if fault.kind in {"crash", "restart", "join"}:
            self._strict_from = max(self._strict_from, loop.time() + self.plan.strict_after)

    async def _next_generation(self) -> None:
        """Wait until the group has begun another generation, but not for long."""
        before, until = self._generation, asyncio.get_running_loop().time() + _GENERATION_S
        while self._generation == before and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(_LOOK_FOR_GENERATION_S)

    @property
    def _generation(self) -> int:
        group = self.cluster.stored_groups.get("app")
        return 0 if group is None else group.generation

    def _look(self) -> None:
        for member in self._members:
            if member._app is not None:
                self.check_fetches(member._app)
        loop = asyncio.get_running_loop()
        if loop.time() < self._strict_from:
            self._not_running = 0.0
            self.watch.excuse()
            for member in self._members:
                app = member._app
                if app is not None and app.state in _ENDS and app.error is not None:
                    raise app.error
        else:
            super()._look()

    # --- the end ------------------------------------------------------------------------------------------------------------------------

    async def _caught_up(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _CAUGHT_UP_S
        while behind := self._behind():
            self._look()
            if loop.time() > deadline:
                raise Wrong(f"not committed within {_CAUGHT_UP_S:g} s: {behind}")
            await asyncio.sleep(LOOK_S)

    def _behind(self) -> str:
        """Tell of a partition with records that are not committed, or of a transaction that is open."""
        topics = {topic for node in self._topology.nodes.values() if isinstance(node, SourceNode) for topic in node.topics}
        topics |= {f"app-{name}" for name in self._topology.internal_topics}
        committed = self.cluster.offsets_of("app").committed
        for partition in self.cluster.partitions():
            name, log = partition.name, partition.log
            if name.topic.startswith("__"):
                continue
            if any(each.end is None for each in log.transactions):
                return f"{name} has a transaction that is open"
            position = max(log.start, committed[name]["offset"] if name in committed else 0)
            if name.topic in topics and not name.topic.endswith("-changelog") and expected_of(log, position, log.end, committed=True):
                return f"{name} has records from offset {position} on"
        return ""

    def _written(self, topic: str) -> list[TestRecord[str, str]]:
        found = [expected_of(each.log, each.log.start, each.log.end, committed=True) for each in self.cluster.topics[topic].partitions]
        return [TestRecord((key or b"").decode(), (value or b"").decode(), 0) for records in found for _, _, key, value, _ in records]


def apps_seed(seed: int) -> Apps:
    """Run a seed; return the run. Raises its error, with the plan and the last events as notes."""
    with quiet():
        made = live(draw_apps(seed), "kafka-apps", Apps)
    assert isinstance(made, Apps)
    return made
