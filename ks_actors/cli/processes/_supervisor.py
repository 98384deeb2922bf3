"""The supervisor of member processes."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors._counted import counted
from ks_actors._errors import StateLocked
from ks_actors.cli.processes._adoption import adopt
from ks_actors.cli.processes._child import Child, ChildState
from ks_actors.cli.processes._oom_kills import OomKills
from ks_actors.lifecycle import component_log, in_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

_RESTS_S: Final = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
# A member that has run for so long was well: its next end counts as the first.
_STEADY_S: Final = 60.0
# A rest is then longer than neighbours take to restore most tasks.
_MOST_AWAITED_S: Final = 2.0
# Rebalances wait for a killed member, whose tasks no neighbour takes.
_MOST_KILLED_S: Final = 5.0
_MOST_STARTS: Final = 5
_WRONG_USE: Final = 2
# A process whose app is closed still has threads and files to close.
_END_S: Final = 10.0
_OF_SIGNAL: Final = 128
_JOIN_S: Final = 30.0
_LOOK_AT_TASKS_S: Final = 10.0
_LOOK_AT_LOCKS_S: Final = 0.2
_LESS_MEMORY: Final = (
    "raise the memory limit, lower statestore_memory_max_bytes or input_buffer_max_bytes, or run "
    "fewer processes"
)
_log = component_log(__name__)


@final
class Supervisor:
    """Run `count` members of an app until a signal, or until they end.

    Each member runs the `command`. A member that dies is started again: at once, and then after
    1, 2, 4 … 30 s. When members cannot run, all are closed. `directory` has the sockets of their
    pages. SIGINT and SIGTERM close all members, and a second one ends them at once. SIGHUP closes
    and starts one member after the other.
    """

    def __init__(
        self, command: Sequence[str], count: int, directory: Path, groups: str = ""
    ) -> None:
        self.children: tuple[Child, ...] = tuple(
            Child(number, count, groups, command, directory, self._hear)
            for number in range(1, count + 1)
        )
        self._groups = groups
        self._closing = asyncio.Event()
        self._code: int | None = None
        self._adoption: asyncio.Task[None] | None = None
        self._joined = False
        self._rolling: asyncio.Task[None] | None = None
        self._roll_again = False
        self._told_tasks = False
        self._oom_kills = OomKills()

    @property
    def closing(self) -> bool:
        """Whether all members close, or are closed."""
        return self._closing.is_set()

    async def run(self) -> int:
        """Run the members; return the exit code of the program.

        It is 0 after a signal or when all members have ended by themselves, else that of a member
        that cannot run, and 128 and more after a second signal.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._roll)
        keeping = [asyncio.create_task(self._keep(child)) for child in self.children]
        try:
            codes = await asyncio.gather(*keeping)
        except Exception:
            # A fault of the supervisor leaves no member behind.
            self._close()
            await asyncio.gather(*keeping, return_exceptions=True)
            raise
        if self._rolling is not None:
            self._rolling.cancel()
            await asyncio.gather(self._rolling, return_exceptions=True)
        if self._code is not None:
            return self._code
        return max((code if code >= 0 else _OF_SIGNAL - code for code in codes), default=0)

    # --- one member -------------------------------------------------------------------------------

    async def _keep(self, child: Child) -> int:
        """Run a member again and again; return its last exit code."""
        loop = asyncio.get_running_loop()
        rests = barren = 0
        while True:
            code = await child.run()
            self._join_together(gone=child)
            if self._closing.is_set():
                child.state = ChildState.CLOSED
                # A signal ends a process whose app has not begun: there was nothing to close.
                return code if child.begun else 0
            if child.rolls:
                child.rolls = False
                rests = barren = 0
                continue
            if child.ended and code == 0:
                child.state = ChildState.DONE
                child.release_tasks()
                _log.info("member %d has ended by itself", child.number)
                return code
            ran = child.running_since
            barren = 0 if ran is not None else barren + 1
            rests = 0 if ran is not None and loop.time() - ran >= _STEADY_S else rests
            child.state = ChildState.RESTING
            end, advice = self._end_of(child, code)
            if self._cannot_run(child, code, barren):
                child.state = ChildState.CLOSED
                self._give_up(code, f"member {child.number} {end}{advice}")
                return code
            rest = _RESTS_S[min(rests, len(_RESTS_S) - 1)]
            rests += 1
            killed = code == -signal.SIGKILL
            if killed:
                # Its memory or its records may be the reason: the next member to have its tasks
                # would be killed, too. So it is back before its session in the group is over.
                rest = min(rest, _MOST_KILLED_S, child.session_s / 2)
            _log.warning(
                "member %d %s; it starts again %s%s",
                child.number,
                end,
                f"in {rest:g} s" if rest else "now",
                advice,
            )
            if (rest > _MOST_AWAITED_S and not killed) or child.final:
                child.release_tasks()
            child.wake.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(child.wake.wait(), rest)
            if self._closing.is_set():
                child.state = ChildState.CLOSED
                return code

    def _cannot_run(self, child: Child, code: int, barren: int) -> bool:
        """Return whether the end of a member is the end of all.

        As long as another member runs, its tasks are processed, so it is started again.
        """
        if any(each.state is ChildState.RUNNING for each in self.children):
            return False
        hopeless = child.final or (
            child.spawned
            and child.running_since is None
            and code > 0
            and (not child.begun or code == _WRONG_USE)
        )
        return hopeless or barren >= _MOST_STARTS

    def _end_of(self, child: Child, code: int) -> tuple[str, str]:
        """Return the text about a member's end, and the advice, if there is any."""
        if code == 0:
            return "has closed, as after a signal to it alone", ""
        if code > 0:
            reason = f": {child.error}" if child.error else ""
            return f"has ended with exit code {code}{reason}", ""
        end, lacked = f"was killed by {signal.Signals(-code).name}", self._oom_kills.claim()
        if code != -signal.SIGKILL or lacked is False:
            return end, ""
        if lacked:
            return f"{end} (out of memory, by the kernel)", f". To mend it, {_LESS_MEMORY}"
        return (
            f"{end} (out of memory?)",
            f". If the kernel has done it, as its log would tell (dmesg), {_LESS_MEMORY}",
        )

    # --- messages of members ----------------------------------------------------------------------

    def _hear(self, child: Child, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "start":
            child.begun, child.close_s = True, message["close_ms"] / 1000 + _END_S
            # Members of earlier releases do not tell it.
            if "session_ms" in message:
                child.session_s = message["session_ms"] / 1000
            if self._adoption is None:
                self._adoption = asyncio.create_task(self._adopt(message, child.close_s))
            self._adoption.add_done_callback(lambda _: child.answer("start"))
        elif kind == "join":
            child.waits = True
            if self._joined:
                self._wake_awaited()
            self._join_together()
            if sum(each.waits for each in self.children) == 1:
                asyncio.get_running_loop().call_later(_JOIN_S, self._let_join)
        elif kind == "ended":
            child.ended = True
        elif kind == "failed":
            child.error, child.final = message["error"], message["final"]
        else:
            child.app_state, child.active = message["state"], message["active"]
            if child.app_state == "RUNNING" and child.state is ChildState.STARTING:
                child.state = ChildState.RUNNING
                child.running_since = asyncio.get_running_loop().time()
                child.settled.set()
                if all(each.state is ChildState.RUNNING for each in self.children):
                    asyncio.get_running_loop().call_later(_LOOK_AT_TASKS_S, self._count_tasks)

    async def _adopt(self, message: dict[str, Any], close_s: float) -> None:
        """Move the task directories, before the first member opens one.

        Wait for a process that uses one: a supervisor that was killed leaves members that close.
        """
        place, application_id = Path(message["home"]), message["application_id"]
        loop = asyncio.get_running_loop()
        begun, told = loop.time(), False
        while not self._closing.is_set():
            try:
                await in_thread(adopt, place, application_id, len(self.children), self._groups)
            except StateLocked as error:
                if loop.time() - begun >= close_s:
                    self._give_up(1, str(error))
                elif not told:
                    told = True
                    _log.warning(
                        "waiting up to %g s, as members of a former supervisor may be closing: %s",
                        close_s,
                        error,
                    )
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), _LOOK_AT_LOCKS_S)
                continue
            except OSError as error:
                # The members restore the stores that they do not find.
                _log.warning("the state in %s could not be shared out: %s", place, error)
            return

    def _join_together(self, gone: Child | None = None) -> None:
        """Let members join the group, the first time together; `gone` has just ended.

        A member that came first would get all tasks, and restore those whose state the others have.
        A member that has died does not hold up the others, and one that starts holds them up for
        30 s.
        """
        if self._joined or all(
            each.waits or each is gone or each.state is not ChildState.STARTING
            for each in self.children
        ):
            self._let_join()

    def _wake_awaited(self) -> None:
        """End the rests of members that the group still has: a member that joins waits for them."""
        for child in self.children:
            if child.state is ChildState.RESTING and child.keeps_tasks:
                child.wake.set()

    def _let_join(self) -> None:
        self._joined = True
        for child in self.children:
            if child.waits:
                child.waits = False
                child.answer("join")

    def _count_tasks(self) -> None:
        tasks = sum(child.active for child in self.children)
        if tasks < len(self.children) and not self._told_tasks and not self._closing.is_set():
            self._told_tasks = True
            _log.warning(
                "%d processes have %s: fewer processes, or more partitions, would waste no memory",
                len(self.children),
                counted(tasks, "task"),
            )

    # --- signals ----------------------------------------------------------------------------------

    def _stop(self, number: signal.Signals) -> None:
        if self._closing.is_set():
            self._code = _OF_SIGNAL + number
            for child in self.children:
                # Not SIGTERM: a member that has been asked to close ignores one of these.
                child.signal(signal.SIGINT)
        self._close()

    def _give_up(self, code: int, reason: str) -> None:
        if not self._closing.is_set():
            self._code = code if code > 0 else 1
            _log.error("%s; no member runs, so all are closed", reason)
            self._close()

    def _close(self) -> None:
        self._closing.set()
        for child in self.children:
            child.wake.set()
            child.close()

    def _roll(self) -> None:
        if self._rolling is not None and not self._rolling.done():
            self._roll_again = True
        else:
            self._rolling = asyncio.create_task(self._roll_all())

    async def _roll_all(self) -> None:
        """Start each member again, the next one when the last one runs."""
        self._roll_again = True
        while self._roll_again:
            self._roll_again = False
            _log.info("starting %s again, one by one", counted(len(self.children), "member"))
            for child in self.children:
                if child.state is ChildState.DONE or self._closing.is_set():
                    continue
                child.restarted.clear()
                child.roll()
                child.wake.set()
                await child.restarted.wait()
                await child.settled.wait()
                if child.state is not ChildState.RUNNING:
                    _log.error(
                        "member %d does not run with the new source: the others go on with the "
                        "old one; send SIGHUP again when it is mended",
                        child.number,
                    )
                    return
