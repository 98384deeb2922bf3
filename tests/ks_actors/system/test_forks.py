"""Processes that an app forks hold nothing that the app has locked, and open no databases."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ks_actors import StateError, StateLocked
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.log.kafka.group._local_members import LocalMembers
from ks_actors.system import check_fork
from ks_actors.system._file_locks import close_locked, open_locked
from tests.ks_actors.system.forking import counting_app

# This process has threads, which newer versions of Python say of each fork.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def in_a_fork(function: Callable[[], object]) -> None:
    """Call a function in a process that is forked, and wait for its end."""
    child = os.fork()
    if not child:
        try:
            function()
        except BaseException:  # noqa: BLE001 - the child is not to go on with the tests
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def is_free(path: Path) -> bool:
    try:
        close_locked(open_locked(path))
    except BlockingIOError:
        return False
    return True


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
async def test_the_directory_of_an_app_is_free_when_its_process_ends(tmp_path: Path, end: signal.Signals) -> None:
    """Whether it is killed or closes, with a child that lives on: state directory, databases and log are free for the next app."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.ks_actors.system.forking", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220, S603 - our own, and nobody else is on the loop
        assert process.stdin is not None
        assert process.stdout is not None
        child = int(await asyncio.to_thread(process.stdout.readline))
        process.send_signal(end)
        assert await asyncio.to_thread(process.wait) == (-end if end is signal.SIGKILL else 0)
        async with EmbeddedLog(tmp_path / "log") as log, counting_app(tmp_path, log):
            os.kill(child, 0)
        process.stdin.close()
        assert not await asyncio.to_thread(process.stdout.read)


async def test_an_app_keeps_its_directory_when_a_child_ends(tmp_path: Path) -> None:
    """The end of a child that was forked does not unlock its parent's files."""
    async with EmbeddedLog() as log, counting_app(tmp_path, log):
        in_a_fork(lambda: None)
        with pytest.raises(StateLocked):
            await counting_app(tmp_path, log).start()


def test_a_child_lets_go_of_nothing(tmp_path: Path) -> None:
    """A child that closes its parent's lock neither unlocks it nor closes a file of its own instead."""
    path = tmp_path / "lock"
    lock = open_locked(path, os.O_CREAT)

    def close_the_parents() -> None:
        # Lower numbers may be free, too: of locks that other parts of the parent have.
        while (own := os.open(path, os.O_RDONLY)) < lock:
            pass
        assert own == lock, "the number is free in the child"
        close_locked(lock)
        os.fstat(own)

    in_a_fork(close_the_parents)
    assert not is_free(path)
    close_locked(lock)
    assert is_free(path)


def test_a_member_with_a_child_is_seen_to_die(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours of a group notice that a member has died, though a process lives that it has forked."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    one = LocalMembers("localhost:9092", "group", "one")
    one.enter()
    ready, held = os.pipe()
    heard, forked = os.pipe()

    def enter_fork_and_die() -> None:
        victim = LocalMembers("localhost:9092", "group", "victim")
        victim.enter()
        victim.know("victim-1")
        if not os.fork():
            os.close(held)
            os.write(forked, b"x")
            os.read(ready, 1)
            os._exit(0)

    in_a_fork(enter_fork_and_die)
    # A forked child lets go as the first thing that it does; its parent may have ended by then.
    assert os.read(heard, 1) == b"x"
    (dead,) = one.dead()
    assert dead.member_id == "victim-1"
    dead.release()
    for end in (held, ready, heard, forked):
        os.close(end)
    one.leave(known=True)


def test_an_app_is_refused_in_a_child_of_a_process_with_databases(tmp_path: Path) -> None:
    """The child lacks RocksDB's threads, and would wait for them when it closes: apps and logs in directories say so."""

    async def live(name: str, log: EmbeddedLog) -> None:
        async with log, counting_app(tmp_path / name, log):
            pass

    def refused(name: str, log: EmbeddedLog) -> None:
        with pytest.raises(StateError, match=r"was forked from process \d+, which had used RocksDB: .* Start processes by spawn"):
            asyncio.run(live(name, log))

    asyncio.run(live("parent", EmbeddedLog()))
    in_a_fork(lambda: refused("child", EmbeddedLog()))
    in_a_fork(lambda: refused("log", EmbeddedLog(tmp_path / "log")))


def test_a_child_of_a_process_without_databases_may_open_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so may its parent then."""
    monkeypatch.setattr("ks_actors.system._forks._opened_by", None)
    in_a_fork(check_fork)
    check_fork()
    with pytest.raises(AssertionError):
        in_a_fork(check_fork)
