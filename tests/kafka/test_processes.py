"""An app in several processes on a real Kafka: members that are killed, rolled, more and fewer of them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from ks_actors.log import Outgoing, TopicPartition
from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.kafka.broker import Broker, skip_untested
from tests.kafka.counting import Counting, counting_as, reached, read_updates
from tests.ks_actors.log.helpers import batch
from tests.waiting import soon, until

pytestmark = [pytest.mark.extended, pytest.mark.timeout(400), pytest.mark.heavy("a program of three processes")]


class Spread(Counting):
    """Two tasks for each of three members."""

    keys = tuple(b"k%d" % number for number in range(12))
    partitions = 6

    @property
    def place(self) -> Path:
        return self.directory / "app"

    def notes(self) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in (self.place / "notes").read_text().splitlines()]
        except FileNotFoundError:
            return []

    def running(self) -> dict[str, dict[str, Any]]:
        """Return the last note of each member that ran when it made it."""
        last = {note["client"]: note for note in self.notes()}
        return {client: note for client, note in last.items() if note["state"] == "RUNNING"}

    def log_text(self) -> str:
        return (self.directory / "log").read_text()

    @asynccontextmanager
    async def processes(self, count: int, limited: Callable[[], object] | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run the app until the end of the block, which a signal must have ended; `limited` is called in it before it begins."""
        self.place.mkdir(exist_ok=True)
        (self.place / "source").write_text("old")
        before = len(self.notes())
        words = [str(count), self.bootstrap, self.guarantee, self.source, self.sink, self.name, str(self.place)]
        command = [sys.executable, "-m", "tests.kafka.processes_app", *words]
        with (self.directory / "log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=log, preexec_fn=limited)
        try:
            await until(lambda: self.all_run(count, before), self.log_text())
            yield process
            # Members have inherited the pipe, so none is left at its end.
            assert process.stdout is not None
            assert await soon(process.stdout.read()) == b""
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    def all_run(self, count: int, after: int = 0) -> bool:
        """Return whether so many members run, with all tasks, each with its share."""
        last = {note["client"]: note for note in self.notes()[after:]}
        tasks = [note["tasks"] for note in last.values() if note["state"] == "RUNNING"]
        return (
            len(tasks) == count
            and sorted(map(len, tasks)) == [self.partitions // count] * count
            and len({task for each in tasks for task in each}) == self.partitions
        )

    async def members(self) -> int:
        return len(await self.log.group_members(self.name))

    async def poison(self) -> None:
        """Write one record that takes all memory, into the first partition."""
        producer = await self.log.producer(client_id="poisoner")
        await producer.send([Outgoing(TopicPartition(self.source, 0), batch(b"poison", keys=[b"k0"]))])
        await producer.close()
        self.fed[b"k0"] += 1

    async def others_counted(self, tasks: Collection[str]) -> None:
        """Wait until all is counted but the records of these tasks."""
        waiting = {int(task.removeprefix("0_")) for task in tasks}
        wanted = {key: count for key, count in self.fed.items() if int(key[1:]) % self.partitions not in waiting}
        await read_updates(self.log, self._sinks(), reached(wanted))


def tasks(notes: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    return {client: note["tasks"] for client, note in notes.items()}


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE])
async def test_members_that_are_killed_and_rolled_keep_their_tasks(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """kill -9 under load loses nothing and doubles nothing, and no task goes to a neighbour; SIGHUP takes a new source; SIGTERM leaves nobody."""
    async with counting_as(Spread, kafka_broker, guarantee, tmp_path) as here:
        async with here.processes(3) as program:
            await here.through(100)
            before, at = here.running(), len(here.notes())
            await here.feed(1_500)
            victim = before[f"{here.name}-2"]
            os.kill(victim["pid"], signal.SIGKILL)
            await here.feed(1_500)
            await until(lambda: here.running().get(f"{here.name}-2", victim)["pid"] != victim["pid"])
            await here.counted()
            assert tasks(here.running()) == tasks(before)
            gained = {task for note in here.notes()[at:] for task in note["tasks"] if task not in before[note["client"]]["tasks"]}
            assert gained == set()
            (here.place / "source").write_text("new")
            program.send_signal(signal.SIGHUP)
            await until(lambda: all(note["version"] == "new" for note in here.running().values()) and here.all_run(3))
            await here.through(100)
            assert tasks(here.running()) == tasks(before)
            assert len({note["pid"] for note in (*here.running().values(), *before.values())}) >= 5
            program.send_signal(signal.SIGTERM)
            assert await soon(program.wait()) == 0
        assert await here.members() == 0


async def test_no_state_is_restored_when_the_number_of_processes_changes(kafka_broker: Broker, tmp_path: Path) -> None:
    """1, 3, 1 processes: task directories move, and tasks follow them."""
    alone = True
    while alone:  # the broker of the tests waits for nobody: the first of three may have the tasks of others for a moment, and restore them
        place = Path(mkdtemp(dir=tmp_path))
        async with counting_as(Spread, kafka_broker, AT_LEAST_ONCE, place) as here:
            for count in (1, 3, 1):
                async with here.processes(count) as program:
                    await here.through(200)
                    program.send_signal(signal.SIGTERM)
                    assert await soon(program.wait()) == 0
            notes = here.notes()
        _, *three, _ = dict.fromkeys(note["pid"] for note in notes)
        alone = any(note["pid"] in three and len(note["tasks"]) > Spread.partitions // 3 for note in notes)
    assert max(note["restored"] for note in notes) == 0


async def test_members_of_a_killed_program_close(kafka_broker: Broker, tmp_path: Path) -> None:
    """SIGKILL of the supervisor: they commit and leave the group, as after SIGTERM."""
    async with counting_as(Spread, kafka_broker, EXACTLY_ONCE, tmp_path) as here:
        async with here.processes(2) as program:
            await here.through(10)
            program.kill()
        assert await here.members() == 0
        assert [note["state"] for note in here.notes()].count("NOT_RUNNING") == 2


LIMIT = 800 << 20


@contextmanager
def memory_group() -> Iterator[Callable[[], object] | None]:
    """Make a control group of memory; yield a function that puts a process into it. None where there can be no group."""
    kinds = {kind: path for _, kind, path in (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())}
    old = "memory" in kinds
    here = Path("/sys/fs/cgroup", "memory" if old else "", kinds.get("memory", kinds.get("", "/")).lstrip("/"))
    group = here / f"ks-actors-{os.getpid()}"
    swap, most = ("memory.memsw.limit_in_bytes", LIMIT) if old else ("memory.swap.max", 0)
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(LIMIT))
        with suppress(OSError):  # there is no swap
            (group / swap).write_text(str(most))
    except OSError:
        if group.exists():
            group.rmdir()
        yield None
        return
    try:
        yield lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        # A process that was just killed is in it for a moment.
        with suppress(OSError):
            group.rmdir()


@pytest.mark.nightly
async def test_a_record_that_takes_all_memory_stops_its_own_tasks_only(kafka_broker: Broker, tmp_path: Path) -> None:
    """The kernel kills its member again and again: the others go on, get none of its tasks, and in the end nothing is lost or doubled."""
    async with counting_as(Spread, kafka_broker, EXACTLY_ONCE, tmp_path) as here:
        with memory_group() as limited:
            async with here.processes(3, limited) as program:
                await here.through(100)
                before, at = here.running(), len(here.notes())
                (victim,) = [note for note in before.values() if "0_0" in note["tasks"]]
                (here.place / "hungry").touch()
                await here.poison()
                # Where the kernel counts, it has not counted the kill by the member itself.
                why = r"( \(out of memory\?\))?" if limited is None else r" \(out of memory, by the kernel\)"
                number = victim["client"].removeprefix(here.name).removeprefix("-") or "1"
                killed = re.compile(rf"member {number} was killed by SIGKILL{why}; it starts again in 4 s\b")
                await until(lambda: killed.search(here.log_text()) is not None, here.log_text())
                await here.feed(100)
                await here.others_counted(victim["tasks"])
                (here.place / "hungry").unlink()
                await here.counted()
                await until(lambda: here.all_run(3))
                assert tasks(here.running()) == tasks(before)
                assert {note["pid"] for note in here.notes()[at:] if note["client"] != victim["client"]} <= {note["pid"] for note in before.values()}
                gained = {task for note in here.notes()[at:] for task in note["tasks"] if task not in before[note["client"]]["tasks"]}
                assert gained == set()
                program.send_signal(signal.SIGTERM)
                assert await soon(program.wait()) == 0
    if limited is None:
        skip_untested("A KILL BY THE KERNEL", "only one by the member itself, as there can be no control group of memory here")
