"""A member process, as the process that `ks-actors run --processes` supervises sees itself."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import threading
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

if TYPE_CHECKING:
    from collections.abc import Callable

    Reply = Callable[[], object]

MEMBER: Final = "KS_MEMBER"
"""The variable with the number of a member, the number of all, and their queries: `2/4/`."""
SUPERVISOR: Final = "KS_SUPERVISOR"
"""The variable with the file descriptor of the channel and the supervisor's directory."""
_PARENT_GONE: Final = 1


@final
class MemberProcess:
    """This process as member `number` of `count` members of one supervisor.

    The channel is a socket with one JSON object a line, in both directions. Its end is the end of
    the supervisor: this process then closes as by SIGTERM.
    """

    def __init__(
        self, number: int, count: int, groups: str, channel: socket.socket, directory: Path
    ) -> None:
        self.number: int = number
        self.count: int = count
        self.groups: str = groups
        """The numbers of processes by query, as in `fraud=1,rest=3`; empty if all run all."""
        self.directory: Path = directory
        """The directory of the supervisor, with a lock and a socket for each member."""
        self.close_s: float = 40.0
        """The longest time (s) of a close; this process ends then, if its supervisor is dead."""
        self.returns: bool = False
        """Whether the supervisor closes this process only to start it again."""
        self.asked: bool = False
        """Whether this process closes, or is closed, at the supervisor's word or end."""
        self._channel = channel
        self._replies: dict[str, Reply] = {}
        self._listener: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def lock(self) -> Path:
        """The file that the supervisor keeps locked while it will start this member again."""
        return lock_of(self.directory, self.number)

    @property
    def socket(self) -> Path:
        """The path for the socket of this member's page."""
        return socket_of(self.directory, self.number)

    def listen(self) -> None:
        """Listen to the supervisor from now on, in a thread."""
        if self._listener is None:
            self._listener = threading.Thread(
                target=self._listen, name="ks-actors supervisor", daemon=True
            )
            self._listener.start()

    def say(self, kind: str, **facts: Any) -> None:
        """Tell the supervisor; do nothing when it is dead. Never waits for an answer."""
        line = json.dumps({"kind": kind, **facts}) + "\n"
        try:
            with self._lock:
                self._channel.sendall(line.encode())
        except OSError:
            pass  # the listener ends this process

    def ask(self, kind: str, reply: Reply, **facts: Any) -> None:
        """Tell the supervisor, and let the listener's thread call `reply` when it answers."""
        self._replies[kind] = reply
        self.say(kind, **facts)

    def _listen(self) -> None:
        try:
            with self._channel.makefile("rb") as lines:
                for line in lines:
                    self._hear(str(json.loads(line)["kind"]))
        except OSError:
            pass  # it is the same as the end
        shutil.rmtree(self.directory, ignore_errors=True)
        self._close(returns=False)
        # A blocked event loop never sees the signal; nothing else would end this process.
        sleep(self.close_s)
        os._exit(_PARENT_GONE)

    def _hear(self, kind: str) -> None:
        if kind in {"close", "end"}:
            self._close(returns=kind == "close")
        elif (reply := self._replies.pop(kind, None)) is not None:
            reply()

    def _close(self, *, returns: bool) -> None:
        """Close as by SIGTERM, once."""
        self.returns = returns
        if not self.asked:
            self.asked = True
            os.kill(os.getpid(), signal.SIGTERM)


def socket_of(directory: Path, number: int) -> Path:
    """Return the path of the socket of a member's page."""
    return directory / f"m{number}.sock"


def lock_of(directory: Path, number: int) -> Path:
    """Return the path of the lock of a member."""
    return directory / f"m{number}.lock"


_known: list[MemberProcess | None] = []


def current_member() -> MemberProcess | None:
    """Return this process as a member; None if no supervisor has started it.

    The first call takes the variables from the environment: programs that this process starts are
    no members. Listening begins with that call.
    """
    if not _known:
        numbers, channel = os.environ.pop(MEMBER, ""), os.environ.pop(SUPERVISOR, "")
        _known.append(_of(numbers, channel) if numbers and channel else None)
    return _known[0]


def _of(numbers: str, channel: str) -> MemberProcess:
    number, count, groups = numbers.split("/")
    descriptor, _, directory = channel.partition(":")
    # Programs that this process starts must not hold the channel.
    os.set_inheritable(int(descriptor), False)
    member = MemberProcess(
        int(number), int(count), groups, socket.socket(fileno=int(descriptor)), Path(directory)
    )
    member.listen()
    return member


def become_supervisor(options: dict[str, Any]) -> NoReturn:
    """Replace this program by a supervisor of members that run this program's command line.

    Nothing of this program stays in memory; the process keeps its id. `options` are those of
    `ks_actors.cli.processes.Options`.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # The default of SIGHUP would end the program until the supervisor heeds signals, and members
    # that have yet to start have the newest source anyway. Other programs keep what is ignored.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.execv(  # noqa: S606 - this interpreter, no shell
        sys.executable,
        [
            sys.executable,
            "-m",
            "ks_actors.cli.processes",
            json.dumps(options),
            *sys.orig_argv[1:],
        ],
    )
