"""A member that runs no app: `member.py NOTES PLAN` notes what happens to it, and does what the file PLAN says for its number."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from ks_actors.system import MemberProcess, current_member

NOTES, PLAN = Path(sys.argv[1]), Path(sys.argv[2])


async def close_slowly(slow: str, member: MemberProcess, step: Callable[[str], None]) -> None:
    """Heed signals as an app does; close when the file `slow` exists, or, with "leaves", once this member is not to return.

    With "end", the supervisor itself has to tell that.
    """
    from ks_actors.app._signals import until_signal  # noqa: PLC0415 - the import takes long

    def wait() -> None:
        while member.returns if slow in {"leaves", "end"} else not Path(slow).exists():
            threading.Event().wait(0.01)

    async def work() -> None:
        member.returns = slow == "end"
        step("runs")
        try:
            await asyncio.Event().wait()
        finally:
            step("closing")
            await asyncio.to_thread(wait)
            step("returns" if member.returns else "closes")

    await until_signal(work(), lambda: step("hurries"))


def end(how: str | int, member: MemberProcess, closes: threading.Event) -> NoReturn:
    """End this process: by SIGKILL, by an error, with an exit code, or only by a signal."""
    if how == "hang":
        while not closes.wait(0.01):  # a signal may have come before
            pass
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if isinstance(how, str):
        member.say("failed", error=how, final=True)
        sys.exit(1)
    if how == 0:
        member.say("ended")
    sys.exit(how)


def main() -> int:
    """Start as an app does, and wait for SIGTERM; the plan has the steps at which this member ends by itself, and how."""
    member = current_member()
    assert member is not None
    assert "KS_MEMBER" not in os.environ
    plan = json.loads(PLAN.read_text()).get(str(member.number), {})

    def note(event: str) -> None:
        with NOTES.open("a") as notes:
            notes.write(f"{member.number} {event} {os.getpid()}\n")

    def step(name: str) -> None:
        note(name)
        if name == "runs":
            member.say("state", state="RUNNING", active=1)
        if name in plan:
            end(plan[name], member, closes)

    def admitted(kind: str, **facts: object) -> None:
        go = threading.Event()
        member.ask(kind, go.set, **facts)
        go.wait()

    closes = threading.Event()
    stubborn = plan.get("stubborn", False)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: note("ignored") if stubborn else closes.set())
    step("begins")
    facts = {"close_ms": 60_000, "session_ms": 100_000_000} | {name: plan[name] for name in plan if name.endswith("_ms")}
    told = {name: value for name, value in facts.items() if value is not None}
    admitted("start", home=str(NOTES.parent / "state" / "app"), application_id="app", **told)
    step("starts")
    admitted("join")
    step("joins")
    if slow := plan.get("slow"):
        asyncio.run(close_slowly(slow, member, step))
        return 0
    step("runs")
    while not closes.wait(0.01):  # a signal does not end a wait of the main thread
        pass
    note("returns" if member.returns else "closes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
