"""The members of a group on this machine, and the dead ones among them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import pytest

from ks_actors import App, LogError
from ks_actors.log.kafka.group._local_members import LocalMembers
from ks_actors.system import close_locked, open_locked
from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.kafka.broker import Broker
from tests.kafka.counting import Counting, counting
from tests.kafka.helpers import module_process
from tests.waiting import PATIENCE_S, until

SERVERS, GROUP = "localhost:9092", "group"
SESSION_S = 2 * PATIENCE_S
GUARANTEES = [EXACTLY_ONCE, AT_LEAST_ONCE]
_MEMBER = """
import sys
from ks_actors.log.kafka.group._local_members import LocalMembers
member = LocalMembers(*sys.argv[1:])
member.enter()
member.know(sys.argv[3])
print(member.entered, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def neighbours(client_id: str, group: str = GROUP, servers: str = SERVERS) -> LocalMembers:
    return LocalMembers(servers, group, client_id)


def entered(client_id: str, group: str = GROUP, servers: str = SERVERS) -> LocalMembers:
    found = neighbours(client_id, group, servers)
    found.know(client_id)
    found.enter()
    assert found.entered
    return found


def place_of(member: LocalMembers) -> Path:
    assert member._directory is not None
    return member._directory


def dead(looker: LocalMembers) -> list[str]:
    found = list(looker.dead())
    for each in found:
        each.release()
    return [each.member_id for each in found]


@contextmanager
def process(client_id: str) -> Iterator[subprocess.Popen[str]]:
    """Have a member in a process of its own."""
    command = [sys.executable, "-c", _MEMBER, SERVERS, GROUP, client_id, f"{client_id}-1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:  # noqa: S603 - our own
        assert running.stdout is not None
        assert running.stdout.readline() == "True\n"
        try:
            yield running
        finally:
            running.kill()


def test_a_member_that_its_supervisor_starts_again_is_not_dead(tmp_path: Path) -> None:
    """Until the supervisor gives it up, or is dead itself: then it has no lock."""
    lock = tmp_path / "lock"
    supervisor = open_locked(lock, os.O_CREAT)
    victim = LocalMembers(SERVERS, GROUP, "victim", awaited=lock)
    victim.know("victim")
    victim.enter()
    looker = entered("looker")
    victim.leave(known=False)
    assert dead(looker) == []
    close_locked(supervisor)
    assert dead(looker) == ["victim"]
    lock.unlink()
    assert dead(looker) == ["victim"]


def test_a_process_that_is_killed_is_found_until_the_group_knows() -> None:
    """By any member that looks; while one deals with it, no other does."""
    with process("victim") as victim:
        one, other = entered("one"), entered("other")
        assert dead(one) == dead(other) == []
        victim.kill()
        victim.wait()
    assert dead(one) == dead(other) == ["victim"]
    (found,) = one.dead()
    assert (found.member_id, found.transactional_id) == ("victim", "victim-1")
    assert dead(other) == []
    found.release()
    assert dead(other) == ["victim"]
    (found,) = one.dead()
    found.forget()
    found.release()
    assert dead(one) == dead(other) == []
    for each in (one, other):
        each.leave(known=True)


def test_a_process_that_is_frozen_keeps_its_place() -> None:
    """It may go on: only the group's session timeout takes it away."""
    one = entered("one")
    with process("victim") as victim:
        victim.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, victim.pid, os.WSTOPPED)
        assert dead(one) == []
        victim.kill()
        victim.wait()
    assert dead(one) == ["victim"]
    one.leave(known=True)


def test_a_leaving_member_counts_as_dead_only_if_the_group_could_not_be_told() -> None:
    """Other members tell the group in its place."""
    one, known, unknown = entered("one"), entered("known"), entered("unknown")
    known.leave(known=True)
    unknown.leave(known=False)
    assert not known.entered
    assert dead(one) == ["unknown"]
    one.leave(known=True)


def test_a_process_that_comes_again_is_not_seen_while_its_former_self_is_buried() -> None:
    """The new process is seen afterwards; the removed member is the former one as the group knew it."""
    one = entered("one")
    entered("victim").leave(known=False)
    (found,) = one.dead()
    again = neighbours("victim")
    again.know("victim reborn")
    again.enter()
    seen = [again.entered]
    assert found.member_id == "victim"
    found.forget()
    found.release()
    again.enter()
    seen.append(again.entered)
    assert seen == [False, True]
    assert dead(one) == []
    again.leave(known=False)
    assert dead(one) == ["victim reborn"]
    one.leave(known=True)


def test_a_process_that_died_before_the_group_knew_it_was_no_member() -> None:
    """Its ids are empty, as they are of a file that was cut off."""
    one = entered("one")
    nameless = neighbours("nameless")
    nameless.enter()
    nameless.leave(known=False)
    assert dead(one) == [""]
    (path,) = (path for path in place_of(one).iterdir() if path.read_bytes().startswith(b"\n"))
    path.write_bytes(b"half")
    assert dead(one) == [""]


def test_a_file_that_is_taken_away_is_made_anew() -> None:
    """By a program that cleans up temporary files: a member that was seen is seen again."""
    one, other = entered("one"), entered("other")
    for path in place_of(one).iterdir():
        path.unlink()
    seen = [one.entered]
    one.enter()
    seen.append(one.entered)
    assert seen == [False, True]
    one.leave(known=False)
    other.enter()
    assert dead(other) == ["one"]


def test_other_groups_and_other_clusters_are_not_looked_at() -> None:
    """A group of the same name may be on another cluster."""
    entered("victim").leave(known=False)
    assert dead(entered("one", group="another")) == []
    assert dead(entered("one", servers="elsewhere:9092")) == []
    assert dead(entered("one")) == ["victim"]


def test_a_directory_of_others_is_not_used(place: Path) -> None:
    """Files of other users must not remove members: no member is seen, no file is read, and the session timeout decides."""
    entered("victim").leave(known=False)
    directory = place / f"ks-actors-{os.getuid()}"
    directory.chmod(0o777)
    one = neighbours("one")
    with pytest.raises(LogError, match="not a directory that only this user can write to"):
        one.enter()
    assert dead(one) == []
    directory.rename(place / "real")
    directory.symlink_to(place / "real")
    with pytest.raises(LogError, match="not a directory that only this user can write to"):
        one.enter()
    assert dead(one) == []


def test_files_of_others_are_nobodys() -> None:
    """Anything that is no file is left alone too: a pipe would keep its reader waiting."""
    one = entered("one")
    victim = entered("victim")
    victim.leave(known=False)
    (path,) = (path for path in place_of(one).iterdir() if path.read_bytes().startswith(b"victim"))
    path.chmod(0o666)
    os.mkfifo(place_of(one) / "pipe")
    (place_of(one) / "directory").mkdir()
    assert dead(one) == []
    path.chmod(0o600)
    assert dead(one) == ["victim"]


def test_without_a_place_for_temporary_files_nobody_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """An app runs all the same."""

    def nowhere() -> str:
        raise FileNotFoundError("no usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    one = neighbours("one")
    with pytest.raises(LogError, match="no usable temporary directory"):
        one.enter()
    assert dead(one) == []
    one.leave(known=True)


async def tasks_of(app: App, count: int) -> None:
    """Wait until an app has so many tasks."""
    await until(lambda: int(app.metrics()["active-tasks"]) == count)


def victim(here: Counting, broker: Broker, directory: Path) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    """Run a member in a process of its own."""
    told = {
        "bootstrap": broker.bootstrap, "guarantee": here.guarantee, "input": here.source, "output": here.sink, "app-id": here.name,
        "session-timeout": str(SESSION_S), "transaction-ms": "600000", "state-dir": str(directory / "victim"),
    }  # fmt: skip
    return module_process("tests.chaos.app", *[word for name, value in told.items() for word in (f"--{name}", value)], log=directory / "victim.log")


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_tasks_of_a_killed_process_go_to_its_neighbours_at_once(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """Long before its session is over, or the transaction that it may have left open."""
    async with counting(kafka_broker, guarantee, tmp_path) as here, here.app("stays", session_timeout_ms=SESSION_S * 1000) as stays:
        async with victim(here, kafka_broker, tmp_path) as process:
            await tasks_of(stays, 1)
            await here.through()
            await here.feed(3_000)
            process.kill()
            await tasks_of(stays, 2)
        await here.through()


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_member_that_joins_when_all_have_died_has_their_tasks_at_once(kafka_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """The tasks come at once also in another place, where nothing tells of a former process."""
    async with counting(kafka_broker, guarantee, tmp_path) as here:
        async with victim(here, kafka_broker, tmp_path) as process:
            await here.through()
            await here.feed(3_000)
            process.kill()
            await process.wait()
        async with here.app("comes", session_timeout_ms=SESSION_S * 1000) as comes:
            await tasks_of(comes, 2)
            await here.through()
