"""A member process, as its supervisor sees it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from contextlib import suppress
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors.lifecycle import component_log
from ks_actors.system import MEMBER, SUPERVISOR, close_locked, lock_of, open_locked, socket_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_CLOSE_S: Final = 40.0
_log = component_log(__name__)


class ChildState(Enum):
    """The state of a member.

    STARTING ──▶ RUNNING ──▶ RESTING ──▶ STARTING; DONE when it has ended by itself, without an
    error, and CLOSED at the supervisor's end.
    """

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    RESTING = "RESTING"
    DONE = "DONE"
    CLOSED = "CLOSED"


@final
class Child:
    """Member `number` of `count`, by query `groups`: its process, and the channel to it.

    `hear` is called with each message of the process.
    """

    def __init__(
        self,
        number: int,
        count: int,
        groups: str,
        command: Sequence[str],
        directory: Path,
        hear: Callable[[Child, dict[str, Any]], None],
    ) -> None:
        self.number: int = number
        self.query: str = _query(number, groups)
        """The query that it runs, `rest` included; empty if all run all."""
        self.state: ChildState = ChildState.STARTING
        self.app_state: str = ""
        """The state of the app, as the process has told it last."""
        self.active: int = 0
        """The number of its active tasks."""
        self.starts: int = 0
        self.error: str = ""
        """The error that has ended the process last."""
        self.final: bool = False
        """Whether a restart cannot help against that error."""
        self.ended: bool = False
        """Whether the app has ended by itself, not by a signal."""
        self.spawned: bool = False
        """Whether the last start has made a process."""
        self.begun: bool = False
        """Whether the app has begun to start, after imports and checks of settings."""
        self.waits: bool = False
        """Whether it waits to join the group."""
        self.rolls: bool = False
        """Whether the process closes to be started again at once."""
        self.running_since: float | None = None
        self.close_s: float = _CLOSE_S
        self.session_s: float = inf
        """The time (s) for which the group waits for a sign of life."""
        self.settled: asyncio.Event = asyncio.Event()
        """Set when the process runs, or has ended."""
        self.restarted: asyncio.Event = asyncio.Event()
        """Set by the next start."""
        self.wake: asyncio.Event = asyncio.Event()
        """Ends the rest before the next start."""
        self._place = f"{number}/{count}/{groups}"
        self._command = command
        self._directory = directory
        self._hear = hear
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._asked = False
        self._ends = False
        self._killing: asyncio.TimerHandle | None = None
        self._lock: int | None = None

    @property
    def pid(self) -> int | None:
        """The id of the process; None while there is none."""
        return None if self._process is None else self._process.pid

    @property
    def keeps_tasks(self) -> bool:
        """Whether neighbours leave the tasks of a dead process with this member."""
        return self._lock is not None

    @property
    def restarts(self) -> int:
        """The number of starts after the first."""
        return max(0, self.starts - 1)

    @property
    def socket(self) -> Path:
        """The socket of its page."""
        return socket_of(self._directory, self.number)

    async def run(self) -> int:
        """Run the process to its end; return the exit code, negative for a signal."""
        self.state, self.app_state, self.active = ChildState.STARTING, "", 0
        self.error, self.final, self.begun, self.waits = "", False, False, False
        self.running_since, self._asked, self.ended = None, False, False
        self.spawned = False
        self.settled.clear()
        self.restarted.set()
        self.starts += 1
        try:
            code = await self._run_process()
        except OSError as error:
            # The system lacks memory, processes or files for the moment.
            self.error, code = f"it could not be started: {error}", 1
        self.settled.set()
        return code

    async def _run_process(self) -> int:
        self.socket.unlink(missing_ok=True)
        self._keep_tasks()
        ours, theirs = socket.socketpair()
        hearing = None
        with ours:
            try:
                with theirs:
                    reader, self._writer = await asyncio.open_connection(sock=ours)
                    environ = os.environ | {
                        MEMBER: self._place,
                        SUPERVISOR: f"{theirs.fileno()}:{self._directory}",
                    }
                    self._process = await asyncio.create_subprocess_exec(
                        *self._command,
                        env=environ,
                        stdin=subprocess.DEVNULL,
                        pass_fds=[theirs.fileno()],
                        # Ctrl-C goes to the supervisor alone, which passes it on once.
                        process_group=0,
                    )
                self.spawned = True
                # A signal of the supervisor may have come before there was a process to close.
                if self._ends:
                    self.close()
                elif self.rolls:
                    self.roll()
                hearing = asyncio.create_task(self._listen(reader))
                code = await self._process.wait()
                # Its last words are in the socket already; programs that it has started may keep
                # the socket open, so do not wait for its end.
                await asyncio.wait([hearing], timeout=0.1)
                return code
            finally:
                if hearing is not None:
                    hearing.cancel()
                    await asyncio.gather(hearing, return_exceptions=True)
                if self._writer is not None:
                    self._writer.transport.abort()
                if self._killing is not None:
                    self._killing.cancel()
                self._process = self._writer = None

    def _keep_tasks(self) -> None:
        """Keep the neighbours from taking the tasks of this member when it dies."""
        if self._lock is None:
            # A neighbour looks at this moment: it takes the tasks as those of any dead member.
            with suppress(BlockingIOError):
                self._lock = open_locked(lock_of(self._directory, self.number), os.O_CREAT)

    def release_tasks(self) -> None:
        """Let the neighbours take the tasks of this member, until its next start."""
        if self._lock is not None:
            close_locked(self._lock)
            self._lock = None

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        # The process has ended, perhaps amid a line, or has sent one that is too long, which none
        # of its messages is.
        with suppress(OSError, ValueError):
            async for line in reader:
                message = json.loads(line)
                try:
                    self._hear(self, message)
                except Exception:  # noqa: BLE001 - of whatever kind
                    # Unanswered, the process would wait for ever.
                    _log.exception(
                        "member %d has sent a message that its supervisor cannot handle: the "
                        "member is killed; start both with the same release",
                        self.number,
                    )
                    self.signal(signal.SIGKILL)

    def answer(self, kind: str) -> None:
        """Send a message."""
        if self._writer is not None:
            self._writer.write(json.dumps({"kind": kind}).encode() + b"\n")

    def close(self) -> None:
        """Ask the process to close, once, and kill it when its time is over.

        A process that is only about to start is asked at once after its start.
        """
        self._ends = True
        self._ask("end")

    def roll(self) -> None:
        """Ask the process to close for another start: it stays a member of the group.

        A process that is only about to start may load the old source: it is asked after its start.
        """
        if self.state is ChildState.RESTING:
            return  # the next start is another one
        self.rolls = True
        self._ask("close")

    def _ask(self, kind: str) -> None:
        # Over the channel: a unit of systemd may have sent SIGTERM to each process, and a second
        # one would end the app at once. An "end" after a "close" tells it to leave the group.
        self.answer(kind)
        if self._process is not None and not self._asked:
            self._asked = True
            self._killing = asyncio.get_running_loop().call_later(
                self.close_s, self.signal, signal.SIGKILL
            )
            # Before the app has begun, the process may not listen.
            if not self.begun:
                self.signal(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; do nothing when the process has ended."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


def _query(number: int, groups: str) -> str:
    """Return the query of a member by the numbers of members by query, as in `fraud=1,rest=3`."""
    pairs = [pair.partition("=") for pair in groups.split(",") if pair]
    names = [query.strip() for query, _, count in pairs for _ in range(int(count))]
    return names[number - 1] if names else ""
