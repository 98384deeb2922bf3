"""A run: a broker, the members of the app, the driver, and what is done to the first two meanwhile."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ks_actors.log import NewTopic
from tests.chaos.members import CLEAN, Member, Status
from tests.chaos.options import Options as MemberOptions
from tests.judges.drivers.faults import Fault, draw
from tests.judges.drivers.jars import driver_command
from tests.judges.drivers.options import Options
from tests.kafka.broker import Broker
from tests.kafka.helpers import connect

PARTITIONS: Final = 5
_CLOSE_S: Final = 40
# A fault that finds all members down, or frozen, comes so much later.
_LATER_S: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class Driver:
    """A driver of Kafka's, and the app that it judges.

    The class in `source` is called with `topics`, to print their names; with the broker's address and `arguments`, to write records and to judge;
    and with the address and `afterwards`, unless that is empty, to judge once more when all members have closed. `partitions` has the counts of the
    topics that have not PARTITIONS. `app` is a module that runs one member, with `member_arguments`.
    """

    source: Path
    app: str
    arguments: Sequence[str]
    afterwards: Sequence[str] = ()
    member_arguments: Sequence[str] = ()
    partitions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The driver's exit code, None if it took too long, and its words; the members' exit codes, and how many have ended by themselves.

    `done` has the number of faults of each kind.
    """

    code: int | None
    said: str
    exits: tuple[int | None, ...]
    unexpected: int
    done: Mapping[str, int]
    seconds: float

    @property
    def clean(self) -> bool:
        """Whether no member ended by itself, and all closed as they were told."""
        return self.unexpected == 0 and all(code in CLEAN for code in self.exits)


class Run:
    """One run, of the broker's start to the driver's verdict."""

    def __init__(self, options: Options, work: Path, driver: Driver) -> None:
        self._options = options
        self._work = work
        self._driver = driver
        self._began = time.monotonic()
        self._unexpected = 0
        self._done: Counter[str] = Counter()
        self.broker = Broker(work / "broker")
        self.members: list[Member] = []

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} {text}", file=sys.stderr, flush=True)  # noqa: T201 - for the user of the command

    async def main(self) -> Outcome:
        """Run, and return how it ended. Leaves no process behind."""
        self._work.mkdir(parents=True, exist_ok=True)
        self.say(f"seed {self._options.seed}, {self._options.guarantee}, work in {self._work}")
        await asyncio.to_thread(driver_command, self._driver.source)
        await asyncio.to_thread(self.broker.start)
        try:
            await self._create_topics()
            self.members = [self._member(number) for number in range(self._options.members)]
            for member in self.members:
                member.start()
            code = await self._judge(self._driver.arguments)
            exits = await self._close()
            if code == 0 and self._driver.afterwards:
                code = await self._judge(self._driver.afterwards)
            said = (self._work / "driver.log").read_text(errors="replace")
            return Outcome(code, said, exits, self._unexpected, dict(self._done), time.monotonic() - self._began)
        finally:
            for member in self.members:
                member.kill()
            await asyncio.to_thread(self.broker.stop)

    async def _create_topics(self) -> None:
        asked = await asyncio.create_subprocess_exec(*driver_command(self._driver.source), "topics", stdout=asyncio.subprocess.PIPE)
        names, _ = await asked.communicate()
        counts = self._driver.partitions
        log = await connect(self.broker)
        try:
            await log.create_topics([NewTopic(name, counts.get(name, PARTITIONS)) for name in names.decode().split()])
        finally:
            await log.close()

    def _member(self, number: int) -> Member:
        options = self._options
        arguments = ["--bootstrap", self.broker.bootstrap, "--guarantee", options.guarantee, "--standbys", str(options.standbys)]
        arguments += ["--workers", str(options.workers), "--session-timeout", str(options.session_timeout), *self._driver.member_arguments]
        how = MemberOptions(app_cmd=f"{sys.executable} -m {self._driver.app}")
        return Member(number, how, self._work, arguments, lambda: time.monotonic() - self._began)

    async def _judge(self, arguments: Sequence[str]) -> int | None:
        """Let the driver do its work, with faults meanwhile if members run; return its exit code, None if it took too long."""
        with (self._work / "driver.log").open("ab") as log:
            command = [*driver_command(self._driver.source), self.broker.bootstrap, *arguments]
            driver = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        try:
            return await self._watch(driver)
        finally:
            with suppress(ProcessLookupError):
                driver.kill()
            await driver.wait()

    async def _watch(self, driver: asyncio.subprocess.Process) -> int | None:
        """Do what is to be done at its time, until the driver ends."""
        options = self._options
        end = time.monotonic() + options.seconds + options.max_verify
        ended = asyncio.ensure_future(driver.wait())
        start = time.monotonic()
        faults = list(draw(options)) if any(member.status is Status.UP for member in self.members) else []
        ends: list[tuple[float, Fault]] = []
        while not ended.done() and time.monotonic() < end:
            due = min([*(at for at, _ in ends), *(fault.at for fault in faults[:1]), time.monotonic() - start + 1])
            await asyncio.wait([ended], timeout=max(due - (time.monotonic() - start), 0))
            now = time.monotonic() - start
            self._restart_ended()
            for at, fault in [each for each in ends if each[0] <= now]:
                ends.remove((at, fault))
                await self._end(fault)
            while faults and faults[0].at <= now:
                fault = faults.pop(0)
                begun = await self._begin(fault)
                if begun is None:
                    faults.insert(0, fault._replace(at=now + _LATER_S))
                    break
                self._done[begun.kind] += 1
                ends.append((now + begun.seconds, begun))
        for _, fault in ends:
            await self._end(fault)
        if not ended.done():
            self.say(f"no verdict {options.max_verify:.0f} s after the last record")
            ended.cancel()
            return None
        return ended.result()

    def _restart_ended(self) -> None:
        for member in self.members:
            if member.status is Status.UP and member.ended() is not None:
                self._unexpected += 1
                self.say(f"member {member.number} ended by itself: {member.ended()}")
                member.kill()
                member.start()

    async def _begin(self, fault: Fault) -> Fault | None:
        """Begin a fault; return it as it is, None if there is nothing yet that it could befall."""
        if fault.kind == "broker":
            if not self.broker.runs:
                return None
            self.say(f"broker away for {fault.seconds:.1f} s")
            await asyncio.to_thread(self.broker.stop)
            return fault
        # A member that is down or frozen leaves it to the next one.
        count = len(self.members)
        up = [number % count for number in range(fault.member, fault.member + count) if self.members[number % count].status is Status.UP]
        if not up:
            return None
        member = self.members[up[0]]
        self.say(f"{fault.kind} member {member.number} for {fault.seconds:.1f} s")
        if fault.kind == "kill":
            member.kill()
        else:
            member.signal(signal.SIGSTOP)
            member.status = Status.STOPPED
        return fault._replace(member=up[0])

    async def _end(self, fault: Fault) -> None:
        member = self.members[fault.member]
        if fault.kind == "broker":
            await asyncio.to_thread(self.broker.start)
        elif fault.kind == "kill":
            member.start()
        else:
            member.signal(signal.SIGCONT)
            member.status = Status.UP

    async def _close(self) -> tuple[int | None, ...]:
        """Stop all members as an operator would; return their exit codes, None for those that had to be killed."""
        for member in self.members:
            member.signal(signal.SIGTERM)
            member.status = Status.ENDING
        deadline = time.monotonic() + _CLOSE_S
        return tuple([await asyncio.to_thread(member.wait, deadline - time.monotonic()) for member in self.members])
