"""The supervisor of member processes: real processes, of a program that runs no app."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from ks_actors.cli.processes import Child, ChildState, Supervisor, _oom_kills, _supervisor
from ks_actors.cli.processes._oom_kills import OomKills
from ks_actors.system import close_locked, open_locked
from tests.waiting import soon, until

MEMBER = Path(__file__).with_name("member.py")


class Running:
    """A supervisor with its members, and the notes of these."""

    def __init__(self, directory: Path, count: int, plan: dict[str, Any]) -> None:
        self.notes, self._plan = directory / "notes", directory / "plan"
        self.notes.touch()
        self.plan(plan)
        command = [sys.executable, str(MEMBER), str(self.notes), str(self._plan)]
        self.supervisor = Supervisor(command, count, directory)
        self.code: asyncio.Task[int] = asyncio.create_task(self.supervisor.run())

    def plan(self, plan: dict[str, Any]) -> None:
        # A member that starts meanwhile reads a whole plan.
        draft = self._plan.with_suffix(".draft")
        draft.write_text(json.dumps(plan))
        draft.replace(self._plan)

    def events(self) -> list[str]:
        return [" ".join(line.split()[:2]) for line in self.notes.read_text().splitlines()]

    def pids(self, event: str) -> list[int]:
        return [int(line.split()[2]) for line in self.notes.read_text().splitlines() if line.startswith(f"{event} ")]

    async def run(self) -> None:
        """Wait until all members run."""
        await until(lambda: all(child.state is ChildState.RUNNING for child in self.supervisor.children))

    async def end(self) -> int:
        if not self.code.done():
            os.kill(os.getpid(), signal.SIGTERM)
        return await self.code


@asynccontextmanager
async def supervised(directory: Path, count: int = 2, plan: dict[str, Any] | None = None) -> AsyncIterator[Running]:
    """Run members; at the end there are none."""
    running = Running(directory, count, plan or {})
    try:
        yield running
    finally:
        await running.end()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rest no time between starts; the kernel kills no process for lack of memory."""
    monkeypatch.setattr(_supervisor, "_RESTS_S", (0.0,))
    monkeypatch.setattr(_supervisor, "OomKills", lambda: Kills(risen=False))


async def test_a_signal_closes_all_members_once(tmp_path: Path) -> None:
    """They join together, run, and close; the exit code is 0, and no process is left."""
    async with supervised(tmp_path) as running:
        await running.run()
        assert sorted(running.events()[:4]) == ["1 begins", "1 starts", "2 begins", "2 starts"]
        assert await running.end() == 0
        assert sorted(running.events()[-2:]) == ["1 closes", "2 closes"]
        assert [child.state for child in running.supervisor.children] == [ChildState.CLOSED] * 2


async def spawning(child: Child) -> None:
    """Wait until the next start has begun; it has no process yet."""
    child.restarted.clear()
    await soon(child.restarted.wait())
    assert child.pid is None


async def test_a_signal_closes_a_member_that_has_no_process_yet(tmp_path: Path) -> None:
    """SIGTERM amid the first start: the processes are closed as soon as there are any, and the exit code is 0."""
    async with supervised(tmp_path, plan={number: {"begins": "hang"} for number in "12"}) as running:
        await spawning(running.supervisor.children[0])
        os.kill(os.getpid(), signal.SIGTERM)
        assert await soon(running.code) == 0
        assert "runs" not in " ".join(running.events())


async def test_a_signal_closes_a_member_that_starts_again(tmp_path: Path) -> None:
    """SIGTERM amid a restart of one member closes it with the others."""
    async with supervised(tmp_path) as running:
        await running.run()
        running.plan({"1": {"begins": "hang"}})
        os.kill(running.pids("1 runs")[0], signal.SIGKILL)
        await spawning(running.supervisor.children[0])
        os.kill(os.getpid(), signal.SIGTERM)
        assert await soon(running.code) == 0
        assert running.events().count("1 runs") == 1


async def test_a_member_that_dies_is_started_again_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The others go on, and it joins without waiting for them."""
    async with supervised(tmp_path) as running:
        await running.run()
        (pid,) = running.pids("1 runs")
        os.kill(pid, signal.SIGKILL)
        await until(lambda: len(running.pids("1 runs")) == 2)
        assert len(running.pids("2 runs")) == 1
        assert running.supervisor.children[0].restarts == 1
        assert "member 1 was killed by SIGKILL; it starts again now" in caplog.text


async def test_a_killed_member_keeps_its_tasks_and_is_back_before_its_session_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it is killed: a neighbour that took them may be killed by the same record, or by the same lack of memory."""
    monkeypatch.setattr(_supervisor, "_RESTS_S", (3600.0,))
    async with supervised(tmp_path, 1) as running:
        await running.run()
        running.plan({"1": {"runs": "kill", "session_ms": 10}})
        os.kill(running.pids("1 runs")[0], signal.SIGKILL)
        await until(lambda: "member 1 was killed by SIGKILL; it starts again in 5 s" in caplog.text)
        child = running.supervisor.children[0]
        assert child.keeps_tasks
        child.wake.set()
        await until(lambda: "member 1 was killed by SIGKILL; it starts again in 0.005 s" in caplog.text)


async def test_a_member_of_an_earlier_release_runs(tmp_path: Path) -> None:
    """It does not tell its session; the supervisor, which keeps running through a roll, may be of a later release."""
    async with supervised(tmp_path, 1, {"1": {"session_ms": None}}) as running:
        await running.run()


async def test_a_member_whose_message_cannot_be_handled_is_killed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It would wait for an answer for ever; the log has the error."""
    async with supervised(tmp_path, 1, {"1": {"close_ms": None}}) as running:
        await until(lambda: "member 1 was killed by SIGKILL" in caplog.text)
        assert "KeyError: 'close_ms'" in caplog.text
        running.plan({})
        await running.run()


async def test_a_member_that_joins_ends_the_rests_of_members_that_the_group_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rebalance waits for a killed member, as neighbours leave the tasks with it."""
    monkeypatch.setattr(_supervisor, "_RESTS_S", (0.0, 3600.0))
    monkeypatch.setattr(_supervisor, "_MOST_KILLED_S", 3600.0)
    async with supervised(tmp_path, plan={"1": {"runs": "kill"}}) as running:
        first, second = running.supervisor.children
        await until(lambda: first.starts == 2 and first.state is ChildState.RESTING and second.state is ChildState.RUNNING)
        running.plan({})
        os.kill(running.pids("2 runs")[0], signal.SIGKILL)
        await until(lambda: running.events().count("2 runs") == 2 and first.state is ChildState.RUNNING)
        assert (first.starts, second.starts) == (3, 2)


async def test_rests_before_starts_become_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A member that dies again and again does not take a core; the end of the program ends a rest."""
    monkeypatch.setattr(_supervisor, "_RESTS_S", (0.0, 3600.0))
    async with supervised(tmp_path, plan={"1": {"runs": 3}}) as running:
        await until(lambda: "member 1 has ended with exit code 3; it starts again in 3600 s" in caplog.text)
        assert running.supervisor.children[0].state is ChildState.RESTING


@pytest.mark.parametrize(("plan", "code"), [({"begins": 2}, 2), ({"begins": 1}, 1), ({"starts": "ConfigError: wrong"}, 1)])
async def test_members_that_cannot_run_end_the_program(tmp_path: Path, plan: dict[str, Any], code: int, caplog: pytest.LogCaptureFixture) -> None:
    """Wrong settings, a module without the app: a restart helps against neither, and the exit code says so."""
    async with supervised(tmp_path, plan={"1": plan, "2": plan}) as running:
        assert await running.code == code
        assert [child.restarts for child in running.supervisor.children] == [0, 0]
        assert "no member runs, so all are closed" in caplog.text
        assert "ConfigError: wrong" in caplog.text or "starts" not in plan


async def test_five_starts_in_vain_end_the_program(tmp_path: Path) -> None:
    """A member that dies in its start may find its Kafka at the next one, but not for ever."""
    async with supervised(tmp_path, 1, {"1": {"starts": 3}}) as running:
        assert await running.code == 3
        assert running.events().count("1 starts") == 5


async def test_a_member_that_cannot_run_ends_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks are processed by the others, so it rests and tries again."""
    monkeypatch.setattr(_supervisor, "_RESTS_S", (3600.0,))
    async with supervised(tmp_path) as running:
        await running.run()
        running.plan({"1": {"begins": 2}})
        (pid,) = running.pids("1 runs")
        monkeypatch.setattr(_supervisor, "_RESTS_S", (0.0, 3600.0))
        os.kill(pid, signal.SIGKILL)
        await until(lambda: running.supervisor.children[0].restarts == 1 and running.supervisor.children[0].state is ChildState.RESTING)
        assert running.supervisor.children[1].state is ChildState.RUNNING


async def test_members_that_end_by_themselves_stay_ended(tmp_path: Path) -> None:
    """When all have, the program ends with exit code 0."""
    async with supervised(tmp_path, plan={"1": {"runs": 0}, "2": {"runs": 0}}) as running:
        assert await running.code == 0
        assert [child.state for child in running.supervisor.children] == [ChildState.DONE] * 2


async def test_a_member_that_a_signal_closes_is_started_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """SIGTERM to one member is not the end of its app: its exit code is 0, but it has not said that it has ended."""
    async with supervised(tmp_path, 1) as running:
        await running.run()
        os.kill(running.pids("1 runs")[0], signal.SIGTERM)
        await until(lambda: len(running.pids("1 runs")) == 2)
        assert "member 1 has closed, as after a signal to it alone; it starts again now" in caplog.text


async def test_a_process_that_the_system_refuses_is_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The lack of a moment ends no program, even when no member runs."""
    monkeypatch.setattr(_supervisor, "_RESTS_S", (0.0, 3600.0))
    async with supervised(tmp_path, 1) as running:
        child = running.supervisor.children[0]
        command, child._command = child._command, [str(tmp_path / "missing")]
        await until(lambda: child.starts == 2 and child.state is ChildState.RESTING)
        child._command = command
        child.wake.set()
        await running.run()
        assert "member 1 has ended with exit code 1: it could not be started: " in caplog.text


async def test_a_fault_of_the_supervisor_leaves_no_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are closed and waited for; the error goes on."""
    async with supervised(tmp_path) as running:
        await running.run()
        monkeypatch.setattr(running.supervisor, "_cannot_run", lambda *_: 1 / 0)
        os.kill(running.pids("1 runs")[0], signal.SIGKILL)
        with pytest.raises(ZeroDivisionError):
            await soon(running.code)
        assert running.events()[-1] == "2 closes"
        running.code = asyncio.create_task(asyncio.to_thread(int))


async def test_a_member_that_hangs_keeps_no_other_out_of_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others join without it, 30 s after the first one has come."""
    monkeypatch.setattr(_supervisor, "_JOIN_S", 0.0)
    async with supervised(tmp_path, plan={"2": {"begins": "hang"}}) as running:
        await until(lambda: "1 runs" in running.events())
        assert "2 starts" not in running.events()


async def test_a_member_that_dies_before_it_joins_lets_the_others_wait_for_each_other(tmp_path: Path) -> None:
    """Else the first one would get all tasks, and restore them; the others wait for the dead one only once it has started again."""
    supervisor = Supervisor([], 3, tmp_path)
    first, second, third = supervisor.children
    supervisor._hear(second, {"kind": "join"})
    supervisor._join_together(gone=first)
    assert second.waits
    first.state = ChildState.RESTING
    supervisor._hear(third, {"kind": "join"})
    assert (second.waits, third.waits) == (False, False)


async def test_sighup_starts_members_again_one_by_one(tmp_path: Path) -> None:
    """The next one closes when the last one runs; each stays a member of the group meanwhile."""
    async with supervised(tmp_path) as running:
        await running.run()
        before = len(running.events())
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: running.events().count("2 runs") == 2)
        steps = ["returns", "begins", "starts", "joins", "runs"]
        assert running.events()[before:] == [f"{number} {step}" for number in (1, 2) for step in steps]


async def test_sighup_reaches_a_member_that_has_no_process_yet(tmp_path: Path) -> None:
    """SIGHUP amid a start: that process closes for another one, and a later SIGHUP rolls all again."""
    async with supervised(tmp_path) as running:
        first, second = running.supervisor.children
        await spawning(first)
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: first.starts == 2 and second.starts >= 2)
        await running.run()
        before = second.starts
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: second.starts == before + 1 and second.state is ChildState.RUNNING)
        assert first.starts == 3


async def test_a_source_that_does_not_run_ends_the_roll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The others go on with the old one; the next SIGHUP starts the resting member, too."""
    monkeypatch.setattr(_supervisor, "_RESTS_S", (3600.0,))
    async with supervised(tmp_path) as running:
        await running.run()
        running.plan({"1": {"begins": 1}})
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: "member 1 does not run with the new source" in caplog.text)
        running.plan({})
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: running.events().count("2 runs") == 2)
        assert running.events().count("2 returns") == 1


async def test_a_second_signal_goes_to_all(tmp_path: Path) -> None:
    """A member that does not close gets it, too; the exit code is the shells' for the signal."""
    async with supervised(tmp_path, 1, {"1": {"stubborn": True}}) as running:
        await running.run()
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: running.events().count("1 ignored") == 1)
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: running.events().count("1 ignored") == 2)
        os.kill(running.pids("1 runs")[0], signal.SIGKILL)
        assert await running.code == 128 + signal.SIGTERM


async def test_a_unit_of_systemd_closes_each_member_once(tmp_path: Path) -> None:
    """It sends SIGTERM to the supervisor and to each member, in any order; only a second signal of the supervisor has members hurry."""
    go = tmp_path / "go"
    async with supervised(tmp_path, plan={number: {"slow": str(go)} for number in ("1", "2")}) as running:
        await running.run()
        os.kill(running.pids("1 runs")[0], signal.SIGTERM)
        await until(lambda: running.events().count("1 closing") == 1)
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: running.events().count("2 closing") == 1)
        os.kill(running.pids("2 runs")[0], signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: {"1 hurries", "2 hurries"} <= {*running.events()})
        go.touch()
        assert await running.code == 128 + signal.SIGTERM
        assert sorted(running.events()[-2:]) == ["1 closes", "2 closes"]
        assert len(running.events()) == len({*running.events()})


async def test_a_unit_of_systemd_closes_members_cleanly(tmp_path: Path) -> None:
    """One SIGTERM to each process is no second signal to any."""
    go = tmp_path / "go"
    async with supervised(tmp_path, 1, {"1": {"slow": str(go)}}) as running:
        await running.run()
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: running.events().count("1 closing") == 1)
        os.kill(running.pids("1 runs")[0], signal.SIGTERM)
        go.touch()
        assert await running.code == 0
        assert "1 hurries" not in running.events()


async def test_a_request_to_close_is_no_third_signal_of_a_member_that_hurries(tmp_path: Path) -> None:
    """Its own two signals may come before the supervisor's request, which must not end it at once."""
    async with supervised(tmp_path, 1, {"1": {"slow": "end"}}) as running:
        await running.run()
        (process,) = running.pids("1 runs")
        os.kill(process, signal.SIGTERM)
        await until(lambda: running.events()[-1] == "1 closing")
        os.kill(process, signal.SIGINT)
        await until(lambda: running.events()[-1] == "1 hurries")
        os.kill(os.getpid(), signal.SIGTERM)
        assert await soon(running.code) == 0
        assert running.events()[-1] == "1 closes"


async def test_a_member_that_rolls_leaves_the_group_at_the_end(tmp_path: Path) -> None:
    """SIGTERM while a member closes for another start: nobody starts it again, so it does not stay a member."""
    async with supervised(tmp_path, 1, {"1": {"slow": "leaves"}}) as running:
        await running.run()
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: running.events().count("1 closing") == 1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await soon(running.code) == 0
        assert running.events()[-1] == "1 closes"


async def test_a_member_that_does_not_close_in_time_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its close_timeout_ms, and some time for its end."""
    monkeypatch.setattr(_supervisor, "_END_S", 0.0)
    async with supervised(tmp_path, 1, {"1": {"stubborn": True, "close_ms": 10}}) as running:
        await running.run()
        assert await running.end() == 128 + signal.SIGKILL


async def test_members_of_a_killed_supervisor_may_close_before_the_next_ones_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A supervisor that is started anew waits for the lock of their state, as long as a close may take, and then ends."""
    home = tmp_path / "state" / "app"
    home.mkdir(parents=True)
    lock = open_locked(home / ".lock", os.O_CREAT)
    try:
        async with supervised(tmp_path) as running:
            await until(lambda: "waiting up to 70 s, as members of a former supervisor may be closing: the state directory" in caplog.text)
            close_locked(lock)
            await running.run()
            assert await running.end() == 0
            lock = open_locked(home / ".lock", os.O_CREAT)
        monkeypatch.setattr(_supervisor, "_END_S", 0.0)
        async with supervised(tmp_path, 1, {"1": {"close_ms": 0}}) as running:
            assert await running.code == 1
        assert caplog.text.count("waiting up to") == 1
        assert "is in use by another process: stop it" in caplog.messages[-1]
    finally:
        close_locked(lock)


async def test_no_member_outlives_its_supervisor(tmp_path: Path) -> None:
    """Kill -9 of the program: the end of the channel closes each member as SIGTERM does."""
    notes, plan = tmp_path / "notes", tmp_path / "plan"
    notes.touch()
    plan.write_text("{}")
    command = ["-m", "ks_actors.cli.processes", json.dumps({"processes": 2}), str(MEMBER), str(notes), str(plan)]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await until(lambda: notes.read_text().count("runs") == 2)
    process.kill()
    # Members have inherited the pipe: it ends with the last one.
    assert await process.stdout.read() == b""
    assert sorted(line.split()[1] for line in notes.read_text().splitlines()[-2:]) == ["closes", "closes"]
    await process.wait()


async def test_more_members_than_tasks_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """With both numbers, once, when all run."""
    monkeypatch.setattr(_supervisor, "_LOOK_AT_TASKS_S", 0.0)
    supervisor = Supervisor([], 2, tmp_path)
    for child in supervisor.children:
        assert "processes" not in caplog.text
        supervisor._hear(child, {"kind": "state", "state": "RUNNING", "active": 0})
    await until(lambda: "2 processes have 0 tasks" in caplog.text)


class Kills:
    """The kernel's count, which has or has not risen, or is not there."""

    def __init__(self, risen: bool | None) -> None:
        self.claim = lambda: risen


@pytest.mark.parametrize(
    ("risen", "end", "advice"),
    [
        (False, "was killed by SIGKILL", ""),
        (True, "was killed by SIGKILL (out of memory, by the kernel)", ". To mend it, raise the memory limit, "),
        (None, "was killed by SIGKILL (out of memory?)", ". If the kernel has done it, as its log would tell (dmesg), raise the memory limit, "),
    ],
)
def test_a_kill_for_lack_of_memory_is_told_with_what_to_do(tmp_path: Path, risen: bool | None, end: str, advice: str) -> None:
    """By the count of the kernel; without a count it may have been one."""
    supervisor, child = Supervisor([], 1, tmp_path), Child(1, 1, "", [], tmp_path, lambda *_: None)
    supervisor._oom_kills = cast("OomKills", Kills(risen))
    told = supervisor._end_of(child, -signal.SIGKILL)
    assert told[0] == end
    assert told[1].startswith(advice)
    assert supervisor._end_of(child, -signal.SIGSEGV) == ("was killed by SIGSEGV", "")


@pytest.mark.parametrize(
    ("groups", "file"),
    [
        ("0::/\n", "memory.events"),
        ("0::/of/the/host\n", "memory.events"),
        ("0::/app.slice\n", "app.slice/memory.events"),
        ("1:name=systemd:/a\n0::/\n4:memory:/docker/1\n", "memory/docker/1/memory.oom_control"),
        ("4:cpu,memory:/of/the/host\n", "memory/memory.oom_control"),
    ],
)
def test_the_count_of_the_kernel_is_found(tmp_path: Path, groups: str, file: str) -> None:
    """In both versions of control groups, on the host and in a container, with a namespace of its own or without; elsewhere there is none."""
    (tmp_path / "groups").write_text(groups)
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("oom 1\noom_kill 1\n")
    kills = OomKills(tmp_path / "groups", tmp_path)
    assert kills.claim() is False
    (tmp_path / file).write_text("oom 2\noom_kill 2\n")
    assert [kills.claim(), kills.claim()] == [True, False]
    assert OomKills(tmp_path / "none").claim() is None


def test_each_kill_of_the_kernel_is_claimed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at nearly the same time are two; a kill that no member claims soon was another process's."""
    now = 0.0
    monkeypatch.setattr(_oom_kills, "monotonic", lambda: now)
    (tmp_path / "groups").write_text("0::/\n")
    count = tmp_path / "memory.events"
    count.write_text("oom_kill 1\n")
    kills = OomKills(tmp_path / "groups", tmp_path)
    count.write_text("oom_kill 3\n")
    assert [kills.claim() for _ in range(3)] == [True, True, False]
    count.write_text("oom_kill 5\n")
    assert kills.claim()
    now = 60.0
    assert kills.claim() is False
