"""The members of a supervisor, as the system shows them, and what was done to them."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final
from urllib.request import urlopen

_ASK_S = 10


@dataclass
class Child:
    """A process that was a member of a supervisor."""

    pid: int
    began: str
    supervisor: int
    number: int
    runs: bool = True
    # Why it was to end: a signal to it, or to its supervisor.
    why: str = ""


@final
class Children:
    """All processes that the supervisors of one member of the tester have started."""

    def __init__(self, count: int, port: int) -> None:
        self._count = count
        self._port = port
        self._known: dict[int, Child] = {}
        self._supervisor: int | None = None
        self._rolls: Counter[tuple[int, int]] = Counter()
        self.all: list[Child] = []

    def look(self, supervisor: int | None) -> None:
        """Note the processes that have begun and ended since the last time."""
        self._supervisor = supervisor
        for child in sorted(self._known.values(), key=lambda each: each.number):
            if _began(child.pid) != child.began:
                self._ended(child)
        if supervisor is not None:
            for pid in _children(supervisor):
                number, began = _number(pid), _began(pid)
                # Until its exec a new process looks like its supervisor.
                if pid not in self._known and number is not None and began is not None:
                    self._known[pid] = Child(pid, began, supervisor, number)
                    self.all.append(self._known[pid])

    def _ended(self, child: Child) -> None:
        child.runs = False
        del self._known[child.pid]
        place = (child.supervisor, child.number)
        if not child.why and child.supervisor != self._supervisor:
            child.why = "supervisor"
        elif not child.why and self._rolls[place]:
            # A process that was started after the signal may have its turn, too.
            child.why = "hup"
            self._rolls[place] -= 1
            # Members have their turns in the order of their numbers: earlier ones have had theirs in this roll.
            for number in range(1, child.number):
                earlier = (child.supervisor, number)
                self._rolls[earlier] = min(self._rolls[earlier], self._rolls[place])

    def roll(self) -> None:
        """Note that the supervisor is to start each process again."""
        self._rolls.update((child.supervisor, child.number) for child in self.running)

    @property
    def running(self) -> list[Child]:
        """The processes of the supervisor that is there now."""
        return [child for child in self._known.values() if child.supervisor == self._supervisor]

    @property
    def complete(self) -> bool:
        """Whether all members have a process."""
        return len(self.running) == self._count

    def signal(self, child: Child, number: signal.Signals) -> None:
        """Send a signal to a process, if it still runs."""
        if _began(child.pid) == child.began:
            with suppress(ProcessLookupError):
                os.kill(child.pid, number)

    def will_end(self, why: str) -> None:
        """Note that all that run now are to end."""
        for child in self.running:
            child.why = child.why or why

    def left(self) -> list[int]:
        """Return the processes that still run, of any supervisor."""
        return [child.pid for child in self.all if _began(child.pid) == child.began]

    def kill(self) -> None:
        """End all of them."""
        for child in self.all:
            self.signal(child, signal.SIGCONT)
            self.signal(child, signal.SIGKILL)

    def unexplained(self) -> list[int]:
        """Return the processes that ended, and that nobody had told to end."""
        return [child.pid for child in self.all if not child.runs and not child.why]

    def told(self) -> tuple[int, int]:
        """Return the restarts that the supervisor tells, and those that were seen of this supervisor. Blocks."""
        with urlopen(f"http://127.0.0.1:{self._port}/api/processes", timeout=_ASK_S) as answer:
            members: list[dict[str, Any]] = json.load(answer)
        seen = sum(child.supervisor == self._supervisor for child in self.all) - self._count
        return sum(member["restarts"] for member in members), seen

    def report(self) -> dict[str, Any]:
        """Return the numbers of processes, by the reason of their end."""
        ends = [child.why or "unexplained" for child in self.all if not child.runs]
        return {"started": len(self.all), "ended": {why: ends.count(why) for why in sorted({*ends})}}


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for task in Path(f"/proc/{pid}/task").iterdir() for word in (task / "children").read_text().split()]
    except OSError:
        return []


def _number(pid: int) -> int | None:
    """Return the number of a member, from its environment as it began."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((int(word.removeprefix(b"KS_MEMBER=").split(b"/")[0]) for word in words if word.startswith(b"KS_MEMBER=")), None)


def _began(pid: int) -> str | None:
    """Return the time at which a process began; None when it has ended, or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]
