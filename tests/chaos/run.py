"""A run: feed, faults, and the checks at the end."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections import defaultdict
from pathlib import Path
from time import monotonic
from typing import Any, final

from aiokafka.errors import KafkaError  # type: ignore[import-untyped]

from tests.chaos.checks import Entry, Update, check_changelog, check_output, count_of
from tests.chaos.clients import Clients, Trouble
from tests.chaos.faults import Fault, draw
from tests.chaos.feed import Feeder
from tests.chaos.members import Member
from tests.chaos.options import Options
from tests.chaos.report import figures
from tests.chaos.stable import StableEnds
from tests.chaos.stage import Stage
from tests.chaos.standstill import Stall
from tests.chaos.watch import Monitor
from tests.kafka.broker import Broker

# What Kafka does by default; the tests' broker is quicker.
_KAFKAS_TIMES = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10000",
}
_TURN_S = 0.02
_ASK_S = 0.5
_CALM_S = 2
# How long after a fault what is fed still counts as hit by it.
_AFTER_S = 0.25
_MISSING_S = 20


class Failed(Exception):
    """The app did not do its part."""


@final
class Run:
    """One run, from the start of the broker to the verdict; `main` once, `clear` in any case."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._begun = monotonic()
        self._work = Path(options.work_dir).absolute()
        stamp = f"{int(time.time())}-{os.getpid()}"
        self._input, self._output, self._app_id = f"chaos-in-{stamp}", f"chaos-out-{stamp}", f"chaos-app-{stamp}"
        shutil.rmtree(self._work, ignore_errors=True)
        self._broker = Broker(self._work / "broker", settings={} if options.quick_broker else _KAFKAS_TIMES, quick=options.quick_broker)
        self._clients = Clients(self._broker.bootstrap)
        self._feeder = Feeder(options, self._broker.bootstrap, self._input)
        self._monitor = Monitor(options, self._broker.bootstrap, self._output, self._feeder)
        self._stable = StableEnds(options, self._broker.bootstrap, self._output, self._feeder)
        self._stalls: list[Stall] | None = None
        self.stage: Stage = Stage(options, self._broker, self._member, self.say, self._at)
        self._plans = draw(options)
        self._open: list[Fault] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._deadline = self._begun + options.max_time
        self._mark: tuple[int, int] = (0, 0)
        self._marked_at = self._begun
        self._seconds: dict[str, float] = {}
        self._violations: list[str] = []
        self._well = False

    def _at(self) -> float:
        return monotonic() - self._begun

    def say(self, what: str) -> None:
        """Tell how it goes."""
        print(f"{self._at():7.1f}  {what}", file=sys.stderr, flush=True)  # noqa: T201 - this is a program

    def _member(self, number: int) -> Member:
        options = self._options
        told = {"bootstrap": self._broker.bootstrap, "guarantee": options.guarantee, "input": self._input, "output": self._output}
        told |= {"app-id": self._app_id, "session-timeout": f"{options.session_timeout:g}"}
        return Member(number, options, self._work, [word for name, value in told.items() for word in (f"--{name}", value)], self._at)

    def report(self) -> dict[str, Any]:
        """Return the figures so far."""
        stage = self.stage
        stalls = self._monitor.stalls() if self._stalls is None else self._stalls
        told = figures(self._options, self._monitor, stage.faults, stalls, self._begun)
        return told | {"unexpected_exits": stage.unexpected, "unclean_stops": stage.unclean, "notes": stage.notes, **self._seconds, **stage.told()}

    async def main(self) -> dict[str, Any]:
        """Run; return the report. Raises Failed when the app does not get on, Trouble when it is not the app's fault."""
        await asyncio.to_thread(self._broker.start)
        await self._clients.create_topics({self._input: self._options.partitions, self._output: self._options.out_partitions})
        self.stage.start()
        self._tasks = [asyncio.create_task(each.run()) for each in (self._feeder, self._monitor, self._stable)]
        await self._warm_up()
        if self._options.mode == "isolated" and self._plans:
            await self._isolated()
        else:
            await self._storm()
        await self._drain()
        await self.stage.stop()
        report = await self._verdict()
        self._well = report["ok"]
        return report

    async def clear(self) -> None:
        """End all running processes, and delete files that are no longer needed: after a failure the broker's data and the state stay."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.stage.clear()
        for name in ("broker", "state") if self._well else ():
            shutil.rmtree(self._work / name, ignore_errors=True)

    # --- turns ----------------------------------------------------------------------------------------------------------------

    async def _turn(self) -> None:
        """Look at everything once."""
        self.stage.step()
        if self.stage.unexpected > self._options.max_exits:
            raise Failed(f"members ended by themselves {self.stage.unexpected} times")
        self._look_for_recovery()
        for task in self._tasks:
            if task.done() and (task is not self._tasks[0] or task.exception() is not None):
                raise Trouble(f"feeding or watching failed: {task.exception()!r}")
        mark, now = (self._monitor.count, sum(self._monitor.progress)), monotonic()
        if mark != self._mark or self._monitor.caught_up():
            self._mark, self._marked_at = mark, now
        elif now - self._marked_at > self._options.stall_limit:
            raise Failed(f"no progress for {self._options.stall_limit:g} s while {self._monitor.behind} input records wait")
        if now > self._deadline:
            raise Failed(f"not done within {self._options.max_time:g} s")
        await asyncio.sleep(_TURN_S)

    def _look_for_recovery(self) -> None:
        now = monotonic()
        for fault in list(self._open):
            if fault.target is None:
                if now - fault.time >= _AFTER_S:
                    fault.target = list(self._feeder.sent)
            elif all(done >= target for done, target in zip(self._monitor.progress, fault.target, strict=True)):
                fault.recovery_s = now - fault.time
                self._open.remove(fault)

    def _inject(self) -> None:
        fault = self.stage.inject(self._plans.pop(0))
        if not fault.skipped:
            self._open.append(fault)

    # --- phases ---------------------------------------------------------------------------------------------------------------

    async def _warm_up(self) -> None:
        options, monitor = self._options, self._monitor
        self.say(f"{options.members} members started, waiting until they have caught up")
        calm = monotonic()
        while monotonic() - calm < _CALM_S or monitor.first is None:
            if monitor.behind > max(1000, options.rate * 0.5) or monitor.first is None:
                calm = monotonic()
            await self._turn()
            if self._at() > options.warmup_max and monitor.first is not None:
                self.stage.notes.append(f"not caught up in {options.warmup_max:g} s: the rate may be more than the app can do")
                break
        self._seconds["warmup_s"] = round(self._at(), 2)
        monitor.reset()
        self._feeder.limit = self._feeder.total + options.records
        self.say(f"warm-up over; {len(self._plans)} faults ({options.mode})")

    @property
    def _feeding(self) -> bool:
        return not self._tasks[0].done()

    async def _storm(self) -> None:
        begun = monotonic()
        self._feeder.may_end = True
        while self._plans or self._feeding:
            while self._plans and monotonic() - begun >= self._plans[0].at:
                self._inject()
            await self._turn()

    async def _isolated(self) -> None:
        options, monitor = self._options, self._monitor
        calm = hit = monotonic()
        while self._plans:
            stands = any(monotonic() - since > 0.5 for since in monitor.since if since is not None)
            if not self.stage.calm or self._open or stands or monitor.behind > max(1000, options.rate):
                calm = monotonic()
            if monotonic() - calm > options.settle:
                self._inject()
                calm = hit = monotonic()
            if monotonic() - hit > 60 + options.stall_limit:
                raise Failed(f"not recovered {monotonic() - hit:.0f} s after the last fault; {monitor.behind} records wait")
            await self._turn()
        calm = monotonic()
        while monotonic() - calm < options.settle:
            if self._open or not self.stage.settled:
                calm = monotonic()
            await self._turn()
        self._feeder.may_end = True
        while self._feeding:
            await self._turn()

    async def _drain(self) -> None:
        """Wait for restarts, and until everything is committed."""
        self._seconds["feed_s"] = round(self._feeder.seconds, 2)
        self.say(f"feed ended: {self._feeder.total} records in {self._feeder.seconds:.1f} s; waiting for restarts and for all to be committed")
        begun = monotonic()
        while not self.stage.settled:
            await self._turn()
        seen, seen_at = ([-1], 0), monotonic()
        while True:
            ends, committed = await self._offsets()
            if committed == ends and self._monitor.caught_up():
                break
            if (committed, self._monitor.count) != seen:
                seen, seen_at = (committed, self._monitor.count), monotonic()
            elif monotonic() - seen_at > min(_MISSING_S, self._options.stall_limit) and committed == ends:
                self.stage.notes.append("all offsets are committed, but updates are missing in the output")
                break
            elif monotonic() - seen_at > self._options.stall_limit:
                raise Failed(f"no progress for {self._options.stall_limit:g} s at the end: committed {committed}, ends {ends}")
            asked = monotonic()
            while monotonic() - asked < _ASK_S:
                await self._turn()
        self._look_for_recovery()
        self._seconds["drain_s"] = round(monotonic() - begun, 2)
        self.say(f"all is committed after {monotonic() - begun:.1f} s; stopping the members")

    async def _offsets(self) -> tuple[list[int], list[int]]:
        try:
            ends = await self._clients.ends(self._input, self._options.partitions)
            return ends, await self._clients.committed(self._app_id, self._input, self._options.partitions)
        except (KafkaError, TimeoutError) as error:
            self.say(f"the broker does not tell offsets: {error!r}")
            return [0], [-1]

    # --- the verdict ----------------------------------------------------------------------------------------------------------

    async def _verdict(self) -> dict[str, Any]:
        options = self._options
        changelog = f"{self._app_id}-counts-changelog"
        topics = {self._output: options.out_partitions, changelog: await self._clients.partitions(changelog)}
        open_transactions = await self._open_transactions(topics)
        inputs = await self._inputs()
        read = await self._clients.read(self._output, options.out_partitions, committed=True)
        self._stalls = self._stable.stalls(read, self._monitor.begun)
        updates = [Update(record.partition, record.key, count_of(record.value), record.number) for record in read]
        found = check_output(inputs, updates, options.guarantee)
        self._violations += found.violations
        if found.figures["gaps"] and options.alos_gaps == "fail":
            self._violations.append(f"gaps {found.figures['gaps']}; e.g. {found.figures['first_gap']}")
        if self._monitor.count != len(updates):
            self._violations.append(f"the live reader saw {self._monitor.count} committed records, the final one {len(updates)}")
        told: dict[str, Any] | None = None
        if topics[changelog]:
            read = await self._clients.read(changelog, topics[changelog], committed=True)
            entries = [Entry(record.partition, record.offset, record.key, record.value) for record in read]
            told, wrong = check_changelog(entries, found.finals, options.guarantee)
            self._violations += wrong
        ends, committed = await self._offsets()
        if committed != ends:
            self._violations.append(f"committed offsets {committed} are not the end offsets {ends}")
        self._violations += self.stage.violations
        if options.strict and (self.stage.unexpected or self.stage.unclean):
            self._violations.append(f"members ended by themselves {self.stage.unexpected} times, not cleanly {self.stage.unclean} times")
        return {
            **self.report(),
            "input_records": self._feeder.total,
            **found.figures,
            "changelog": told,
            "committed_equals_end": committed == ends,
            "open_transactions": open_transactions,
            "violations": self._violations,
            "ok": not self._violations,
        }

    async def _open_transactions(self, topics: dict[str, int]) -> int:
        """Wait until the broker has ended the transactions of killed members; return how many partitions still have one."""
        begun = monotonic()
        while True:
            found: list[str] = []
            for topic, partitions in topics.items():
                if partitions:
                    stable = await self._clients.ends(topic, partitions, committed=True)
                    ends = await self._clients.ends(topic, partitions)
                    pairs = enumerate(zip(stable, ends, strict=True))
                    found += [f"{topic}-{number} (stable {at}, end {end})" for number, (at, end) in pairs if at != end]
            self._seconds["lso_wait_s"] = round(monotonic() - begun, 1)
            if not found or monotonic() - begun > self._options.txn_wait:
                break
            await asyncio.sleep(_ASK_S)
        if found:
            self._violations.append(f"open transactions after {self._options.txn_wait:g} s: {', '.join(found[:4])}")
        return len(found)

    async def _inputs(self) -> dict[bytes, list[int]]:
        """Return the numbers of the input's records by key; the input must be as it was fed."""
        found: dict[bytes, list[int]] = defaultdict(list)
        expected = [0] * self._options.partitions
        for record in await self._clients.read(self._input, self._options.partitions, committed=False):
            if record.number is None or record.number != expected[record.partition]:
                raise Trouble(f"the input is not what was fed: partition {record.partition} offset {record.offset} has number {record.number}")
            expected[record.partition] += 1
            found[record.key].append(record.number)
        if expected != self._feeder.sent:
            raise Trouble(f"{self._feeder.sent} records were fed, and {expected} are in the input")
        return found
