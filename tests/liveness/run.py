"""Run a plan on the embedded log, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from random import Random
from typing import Any, Final

import pytest

from actors import AskTimeout
from actors.actor._blocking import BlockingLane
from actors.testing import VirtualLoop
from ks_actors import LogTimeout, NotRunning, TaskId, TaskTimeout
from ks_actors.log import Outgoing, TopicPartition
from ks_actors.log.embedded._faults import Faults
from ks_actors.records._batch import Batch
from ks_actors.records._partitioner import partition as partition_of
from ks_actors.runtime import InstanceState
from ks_actors.testing import AppHarness, _harness
from tests.liveness.ledger import Ledger
from tests.liveness.plan import Burst, Fault, Lane, Plan
from tests.liveness.road import Road, RoadConnection
from tests.liveness.topology import build
from tests.liveness.watch import LOOK_S, Standstill, Watch
from tests.liveness.wide_topology import GRACE_MS, IDLE_MS, WINDOW_MS

START_MS: Final = 1_700_000_000_000
_LONGEST_S: Final = 900.0
_REBALANCE_S: Final = 60.0
_CAUGHT_UP_MS: Final = 120_000
_ENDS: Final = frozenset({InstanceState.ERROR, InstanceState.NOT_RUNNING})
_KEYS: Final = 400
# Results of these come by the clock, when windows are over.
_LATER: Final = frozenset({"gather", "final"})
# A write that fails is made again when the silence has lasted as long again.
_LATER_S: Final = 4 * (WINDOW_MS + GRACE_MS + IDLE_MS) / 1000 + 60.0


class Run:
    """One run: feed, let faults happen, look all the time; at the end everything has to be done, and right."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.ledger = Ledger()
        self.road = Road(plan.latency)
        self.watch = Watch(plan, self.ledger)
        self.told: list[str] = []
        self.spent: float = 0.0
        self._random = Random(plan.seed)
        self._activity: tuple[int, ...] = ()
        self._paused: int = 0
        self._slow: int = 0
        self._hands = asyncio.Lock()
        self._not_running: float = 0.0
        self._members: list[AppHarness] = []
        self._keys: dict[str, list[list[str]]] = {}
        self._used: dict[str, int] = {}

    def note(self, what: str) -> None:
        """Remember an event, to be reported with an error."""
        self.told.append(f"{asyncio.get_running_loop().time():9.3f} {what}")

    async def main(self) -> None:
        """Do it. Raises Standstill, Wrong, and the final error of an app."""
        plan = self.plan
        topics = {topic: lane.partitions for lane in plan.lanes for topic in (*lane.topics, f"{lane.name}-out")}
        harness = AppHarness(
            build(plan, self.ledger, self._spend),
            seed=plan.seed,
            topics=topics,
            start=False,
            wall_clock_ms=START_MS,
            task_priority=self._priorities(),
            **plan.config,
        )
        async with harness:
            self._members = [harness]
            self._measure_work(harness)
            await harness.start()
            await self._live(harness)
            await harness.caught_up(_CAUGHT_UP_MS)
            if any(lane.shape in _LATER for lane in plan.lanes):
                await asyncio.sleep(_LATER_S)
                await harness.caught_up(_CAUGHT_UP_MS)
            for lane in plan.lanes:
                self.ledger.check(lane, await harness.read(f"{lane.name}-out"), exactly_once=plan.exactly_once)

    async def _live(self, harness: AppHarness) -> None:
        lanes = {topic: lane for lane in self.plan.lanes for topic in lane.topics}
        async with AsyncExitStack() as stack:
            producer = await harness.log.producer(client_id="feed")
            producer._faults = Faults()
            stack.push_async_callback(producer.close)
            work = [asyncio.ensure_future(self._feed(producer, lanes[burst.topic], burst)) for burst in self.plan.bursts]
            work += [asyncio.ensure_future(self._befall(harness, fault)) for fault in self.plan.faults]
            try:
                await self._look_on(harness, work)
            finally:
                for one in work:
                    one.cancel()
                await asyncio.gather(*work, return_exceptions=True)

    # --- looking on -----------------------------------------------------------------------------------------------------------

    async def _look_on(self, harness: AppHarness, work: Sequence[asyncio.Future[None]]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            for one in work:
                if one.done():
                    one.result()
            self._look()
            self._look_for_spinning(harness)
            if all(one.done() for one in work) and not any(self.ledger.waiting.values()):
                return
            if loop.time() > _LONGEST_S:
                raise Standstill(f"after {_LONGEST_S:g} s these records are still to be read: {+self.ledger.waiting}")

    def _look(self) -> None:
        running = all(member._app is not None and member._app.state is InstanceState.RUNNING for member in self._members)
        for member in self._members:
            if member._app is not None and member._app.state in _ENDS:
                raise member._app.error or NotRunning(f"{member.config.client_id} has ended")
        if self.road.is_away or self._paused or (self._slow and self.plan.stands_still_to_commit):
            self._not_running = 0.0
            self.watch.excuse()
        elif not running:
            self._not_running += LOOK_S
            self.watch.excuse()
            if self._not_running > _REBALANCE_S + 3 * self.road.commits_take:
                raise Standstill(f"not all instances have come to be RUNNING within {self._not_running:g} s")
        else:
            self._not_running = 0.0
            self.watch.look(LOOK_S)

    def _look_for_spinning(self, harness: AppHarness) -> None:
        steps, activity = harness.kit._dispatch.steps, (len(self.ledger.sent), self.ledger.read.total(), len(self._members))
        if activity == self._activity:
            self.watch.look_at_steps(steps)
        else:
            self._activity = activity
            self.watch.something_happens(steps)

    # --- input ----------------------------------------------------------------------------------------------------------------

    async def _feed(self, producer: Any, lane: Lane, burst: Burst) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(burst.begin)
        begin, sent = loop.time(), 0
        while sent < burst.count:
            due = min(burst.count, 1 + int((loop.time() - begin) * burst.rate))
            if due > sent:
                await producer.send(self._records(lane, burst, due - sent))
                sent = due
            await asyncio.sleep(max(1 / burst.rate, 0.002))

    def _records(self, lane: Lane, burst: Burst, count: int) -> list[Outgoing]:
        now = START_MS + int(asyncio.get_running_loop().time() * 1000)
        batches: dict[int, Batch] = {}
        for _ in range(count):
            key, partition = self._key(lane, burst)
            batch = batches.setdefault(partition, Batch([], [], []))
            batch.keys.append(key.encode())
            batch.values.append(self.ledger.send(lane, burst.topic, partition, key).encode())
            batch.timestamps.append(now)
        return [Outgoing(TopicPartition(burst.topic, partition), batch) for partition, batch in batches.items()]

    def _key(self, lane: Lane, burst: Burst) -> tuple[str, int]:
        """Return a key for one of the burst's partitions; of a stream that is joined each key comes once."""
        if lane.shape == "join":
            number = self._used[burst.topic] = self._used.get(burst.topic, -1) + 1
        else:
            number = self._random.randrange(_KEYS)
        key = f"k{number}"
        if burst.spread is None:
            return key, partition_of(key.encode(), lane.partitions)
        wanted = number % min(burst.spread, lane.partitions)
        suffix = 0
        while partition_of(key.encode(), lane.partitions) != wanted:
            suffix += 1
            key = f"k{number}.{suffix}"
        return key, wanted

    # --- faults ---------------------------------------------------------------------------------------------------------------

    async def _befall(self, harness: AppHarness, fault: Fault) -> None:
        await asyncio.sleep(fault.begin)
        self.note(f"{fault.kind} for {fault.seconds} s, {fault.size} {fault.topic}")
        match fault.kind:
            case "outage":
                await self.road.outage(fault.seconds)
            case "slow commits":
                self.watch.slow_commits = max(self.watch.slow_commits, fault.size)
                self._slow += 1
                self.road.commits_take = fault.size
                await asyncio.sleep(fault.seconds)
                self.road.commits_take = 0.0
                await asyncio.sleep(fault.size)
                self._slow -= 1
            case "pause":
                await self._pause(harness, fault.seconds)
            case "reset":
                await self._reset(harness, fault)
            case "join":
                await self._join(harness, fault.seconds)
            case "crash":
                async with self._hands:
                    await harness.crash()
                    await asyncio.sleep(fault.seconds)
                    await harness.restart()
            case "set back":
                harness.kit.set_clock_back(fault.size)
            case _:
                await self._befall_wide(harness, fault)
        self.note(f"{fault.kind} is over")

    async def _befall_wide(self, harness: AppHarness, fault: Fault) -> None:
        match fault.kind:
            case "worker":
                async with self._hands:
                    if await harness.add_worker() is not None:
                        await asyncio.sleep(fault.seconds)
                        # A worker that waits for a commit ends when the log is back.
                        with suppress(TaskTimeout):
                            await harness.remove_worker()
            case "expelled":
                harness.lose_membership()
            case "restart":
                async with self._hands:
                    # The last commit may have no answer: what it was to commit is done again.
                    with suppress(LogTimeout):
                        await harness.close()
                    await asyncio.sleep(fault.seconds)
                    await harness.restart()
            case "refused":
                operation: Any = fault.topic
                harness.fail(operation, LogTimeout(f"{operation} had no answer"), 2, after=bool(fault.size))

    async def _pause(self, harness: AppHarness, seconds: float) -> None:
        async with self._hands:
            self._paused += 1
            with suppress(AskTimeout, TaskTimeout, NotRunning):
                await harness.app.pause()
            await asyncio.sleep(seconds)
            while True:
                with suppress(AskTimeout, TaskTimeout, NotRunning):
                    await harness.app.resume()
                    break
                await asyncio.sleep(1.0)
            self._paused -= 1

    async def _reset(self, harness: AppHarness, fault: Fault) -> None:
        """Delete the first records of each partition of a topic, as retention does."""
        committed = harness.log._groups.get(harness.config.application_id).committed()
        for name, partition in list(harness.log._broker.partitions.items()):
            before = partition.begin + int((partition.end - partition.begin) * fault.size)
            if name.topic == fault.topic and before > partition.begin:
                await harness.log.delete_records({name: before})
                self.ledger.delete(name.topic, name.partition, before, committed[name].offset if name in committed else 0)

    async def _join(self, harness: AppHarness, seconds: float) -> None:
        async with self._hands:
            other = harness.another(start=False)
            async with other:
                self._members.append(other)
                try:
                    await other.start()
                    await asyncio.sleep(seconds)
                finally:
                    self._members.remove(other)

    # --- work that takes time -------------------------------------------------------------------------------------------------

    def _priorities(self) -> Callable[[TaskId], int] | None:
        lanes = self.plan.lanes
        if not any(lane.priority for lane in lanes):
            return None
        # Subtopologies are numbered in the order in which lanes were added.
        by_part = [lane.priority for lane in lanes for _ in range(2 if lane.shape == "recount" else 1)]
        return lambda task: by_part[task.subtopology]

    def _spend(self, seconds: float) -> None:
        self.spent += seconds

    def _measure_work(self, harness: AppHarness) -> None:
        """Have slices end when the time that their functions spend is a slice long."""
        kit = harness.kit
        kit.works_by(lambda: self.spent)

    async def in_a_thread(self, job: Any) -> Any:
        """Run a job of a worker for as long as its functions spend."""
        before = self.spent
        result = job()
        if self.spent > before:
            await asyncio.sleep(self.spent - before)
        return result


@contextmanager
def _in_place(run: Run) -> Iterator[None]:
    """Have apps use the run's log, and its time for work in threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_harness, "Connection", partial(RoadConnection, run.road))
        patch.setattr(BlockingLane, "run", lambda _, job: run.in_a_thread(job))
        yield


def live(plan: Plan, layer: str = "app", make: Callable[[Any], Run] = Run) -> Run:
    """Run a plan of a layer, as `make` makes it of the plan; return the run. Raises its error, with the plan and the events as notes."""

    async def main() -> Run:
        run = make(plan)
        try:
            with _in_place(run):
                await run.main()
        except BaseException as error:
            error.add_note("\n".join((plan.told(), *run.told, f"again: python -m tests.liveness --layer {layer} --seed {plan.seed}")))
            raise
        return run

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())
