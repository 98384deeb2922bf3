"""A run: a broker, the members of the app, the driver, and what is done to the first two meanwhile."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ks_actors.log import NewTopic
from tests.chaos.checks import EXACTLY_ONCE
from tests.chaos.members import CLEAN, Member, Status
from tests.chaos.options import Options as MemberOptions
from tests.judges.smoke.faults import draw
from tests.judges.smoke.jars import driver_command
from tests.kafka.broker import Broker
from tests.kafka.helpers import connect

if TYPE_CHECKING:
    from pathlib import Path

    from tests.judges.smoke.faults import Fault
    from tests.judges.smoke.options import Options

PARTITIONS: Final = 5
# The topics that get one record for each of the input.
_ONE_FOR_ONE: Final = ("echo", "min", "max", "sum", "cnt", "min-raw")
_CLOSE_S: Final = 40


@dataclass(frozen=True)
class Verdict:
    """What the driver said, and how the members ended.

    `doubled` is how many records the driver itself wrote twice: its producer tries again what it has sent to a broker that goes away.
    """

    passed: bool
    said: str
    doubled: int
    exits: tuple[int | None, ...]
    unexpected: int
    seconds: float

    @property
    def ok(self) -> bool:
        return self.passed and self.unexpected == 0 and all(code in CLEAN for code in self.exits)


def midnight_is_near(seconds: float) -> bool:
    """Tell whether windows of a day may end within the next seconds, or hardly have: the driver expects one for each key."""
    now = datetime.now(UTC)
    today = now.hour * 3600 + now.minute * 60 + now.second
    return today > 86_400 - seconds or today < 70


class Run:
    """One run, of the broker's start to the driver's verdict."""

    def __init__(self, options: Options, work: Path) -> None:
        self._options = options
        self._work = work
        self._began = time.monotonic()
        self._unexpected = 0
        self.broker = Broker(work / "broker")
        self.members: list[Member] = []

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} {text}", file=sys.stderr, flush=True)  # noqa: T201 - for the user of the command

    async def main(self) -> Verdict:
        """Run, and return the verdict. Leaves no process behind."""
        options = self._options
        command = driver_command()
        await asyncio.to_thread(self.broker.start)
        try:
            await self._create_topics(command)
            self.members = [self._member(number) for number in range(options.members)]
            for member in self.members:
                member.start()
            arguments = [self.broker.bootstrap, str(options.keys), str(options.records), str(options.seconds)]
            with (self._work / "driver.log").open("wb") as log:
                driver = await asyncio.create_subprocess_exec(
                    *command, *arguments, str(options.guarantee == EXACTLY_ONCE).lower(), stdout=log, stderr=log
                )
            try:
                code = await self._watch(driver)
            finally:
                with suppress(ProcessLookupError):
                    driver.kill()
                await driver.wait()
            return self._verdict(code, await self._close())
        finally:
            for member in self.members:
                member.kill()
            await asyncio.to_thread(self.broker.stop)

    async def _create_topics(self, command: list[str]) -> None:
        asked = await asyncio.create_subprocess_exec(*command, "topics", stdout=asyncio.subprocess.PIPE)
        names, _ = await asked.communicate()
        log = await connect(self.broker)
        try:
            await log.create_topics([NewTopic(name, PARTITIONS) for name in names.decode().split()])
        finally:
            await log.close()

    def _member(self, number: int) -> Member:
        options = self._options
        arguments = ["--bootstrap", self.broker.bootstrap, "--guarantee", options.guarantee, "--standbys", str(options.standbys)]
        arguments += ["--workers", str(options.workers), "--session-timeout", str(options.session_timeout)]
        how = MemberOptions(app_cmd=f"{sys.executable} -m tests.judges.smoke.app")
        return Member(number, how, self._work, arguments, lambda: time.monotonic() - self._began)

    async def _watch(self, driver: asyncio.subprocess.Process) -> int | None:
        """Do what is to be done at its time; return the driver's exit code, None if it took too long."""
        options = self._options
        end = time.monotonic() + options.seconds + options.max_verify
        ended = asyncio.ensure_future(driver.wait())
        start = time.monotonic()
        faults = list(draw(options))
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
                if await self._begin(fault):
                    ends.append((now + fault.seconds, fault))
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

    async def _begin(self, fault: Fault) -> bool:
        self.say(f"{fault.kind} {'' if fault.kind == 'broker' else f'member {fault.member} '}for {fault.seconds:.1f} s")
        member = self.members[fault.member]
        if fault.kind == "broker":
            await asyncio.to_thread(self.broker.stop)
            return True
        if member.status is not Status.UP:
            return False
        if fault.kind == "kill":
            member.kill()
        else:
            member.signal(signal.SIGSTOP)
            member.status = Status.STOPPED
        return True

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
        deadline = time.monotonic() + _CLOSE_S
        return tuple([await asyncio.to_thread(member.wait, deadline - time.monotonic()) for member in self.members])

    def _verdict(self, code: int | None, exits: tuple[int | None, ...]) -> Verdict:
        said = (self._work / "driver.log").read_text(errors="replace")
        # The driver tells now and then how many records it has read of each topic.
        told = [line for line in said.splitlines() if line.startswith("{") and "data=" in line]
        counts = {topic: int(count) for topic, count in re.findall(r"([\w-]+)=(\d+)", told[-1] if told else "")}
        generated = self._options.keys * self._options.records
        # One more record in each partition moves time at the end.
        doubled = max(counts.get("data", 0) - PARTITIONS - generated, 0)
        passed = code == 0
        if code == 1 and "ALL-RECORDS-DELIVERED" in said and "PROCESSED-MORE-THAN-GENERATED" in said:
            # Kafka's system test takes this for a success at least once: records may be processed again after a crash.
            # Exactly once, each record that was written twice is to be processed twice, and no other.
            once = {counts.get(topic) for topic in _ONE_FOR_ONE} == {generated + doubled} and doubled > 0
            passed = once or self._options.guarantee != EXACTLY_ONCE
        return Verdict(passed, said, doubled, exits, self._unexpected, time.monotonic() - self._began)


async def judge(options: Options, work: Path) -> Verdict:
    """Do one run in a directory."""
    work.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - nothing else runs yet
    run = Run(options, work)
    run.say(f"seed {options.seed}, {options.guarantee}, work in {work}")
    return await run.main()
