"""An actor system for tests."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import Executor
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Literal, TypeVar

from actors._checks import check_executor
from actors._errors import SystemClosed
from actors.actor import Spec
from actors.events import Undelivered
from actors.system import System, SystemCore
from actors.testing._clock import ManualClock
from actors.testing._inline import InlineExecutor
from actors.testing._loop import VirtualLoop
from actors.testing._probe import Probe, Recorder
from actors.testing._schedule import SeededDispatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from actors.loop import Tasks

_STILL = 20
T = TypeVar("T")


class TestKit(System):
    """A system with virtual time and an order of actors chosen by `seed`.

    Blocking jobs run inline, or in threads with `executor="threads"` (or in your own executor). On
    a `VirtualLoop` all time is virtual, and `quiesce` is exact. On any other loop only the
    framework's own timers are virtual, and quiet means no progress for 20 turns of the loop.

    The failure of a top-level actor does not cancel the test. It is added to `failures`, and raised
    at the end of the block unless the test removes it, as `Probe.terminated` does. An error that
    leaves the block gets the seed as a note.
    """

    __test__ = False  # not a test case, whatever its name says

    def __init__(
        self,
        *,
        seed: int = 0,
        name: str = "test",
        executor: Executor | Literal["inline", "threads"] = "inline",
        ask_timeout: float = 5.0,
    ) -> None:
        check_executor(executor, ("inline", "threads"))
        jobs = (
            InlineExecutor()
            if executor == "inline"
            else executor
            if isinstance(executor, Executor)
            else None
        )
        super().__init__(name, executor=jobs, ask_timeout=ask_timeout, stall_after=None)
        self.seed = seed
        self.undelivered: list[Undelivered] = []
        self._dispatch = SeededDispatch(seed)
        self._clock: ManualClock | None = None
        self._probes = count(1)
        self.subscribe(Undelivered, self.undelivered.append)

    @property
    def dead_letters(self) -> list[Undelivered]:
        """The former name of `undelivered`."""
        return self.undelivered

    @property
    def clock(self) -> ManualClock:
        """The time of the block; on a `VirtualLoop` it is the loop's."""
        if self._clock is None:
            raise SystemClosed(self._name)
        return self._clock

    @property
    def failures(self) -> list[Exception]:
        """The failures of top-level actors, as the system would raise them.

        The end of the block raises the failures that are left.
        """
        return self._failures

    async def quiesce(self) -> None:
        """Wait until nothing can happen before time advances.

        Then mailboxes are empty, actors wait, and no blocking job is running.
        """
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop):
            await loop.idle()
        else:
            await self._settle()

    def probe(self, kind: type[T], /) -> Probe[T]:
        """Start an actor that records its messages for the test.

        `kind` is the type (or a base) of its messages.
        """
        del kind  # it is for type checkers
        _, core = self._opened()
        recorder = Recorder()
        cell = self._family.begin(core, Spec(lambda: recorder), f"probe-{next(self._probes)}")
        return Probe(self, cell, recorder)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        note = f"actors test kit: seed {self.seed}"
        try:
            async with self._time_goes_by():
                await super().__aexit__(kind, error, traceback)
        except Exception as raised:
            raised.add_note(note)
            raise
        if error is not None:
            error.add_note(note)

    def _make_kernel(self, loop: asyncio.AbstractEventLoop, tasks: Tasks) -> SystemCore:
        self._clock = clock = (
            loop.clock if isinstance(loop, VirtualLoop) else ManualClock(self._settle)
        )
        return SystemCore(
            tasks=tasks,
            clock=clock,
            dispatch=self._dispatch,
            events=self._events,
            random=Random(self.seed),  # noqa: S311 - to be repeatable is the point
            ask_timeout=self._ask_timeout,
            executor=self._shared_executor,
            escalate=self._escalate,
        )

    def _escalate(self, error: Exception) -> None:
        self._failures.append(error)

    async def _settle(self) -> None:
        """Implement `quiesce` on a loop that cannot tell whether it is idle."""
        _, core = self._opened()
        still, steps = 0, -1
        while still < _STILL:
            await asyncio.sleep(0)
            due = self.clock.next_due()
            if due is not None and due <= self.clock.time():
                self.clock.jump()
                still = 0
            moved = not self._dispatch.quiet or core.jobs > 0 or self._dispatch.steps != steps
            still = 0 if moved else still + 1
            steps = self._dispatch.steps

    @contextlib.asynccontextmanager
    async def _time_goes_by(self) -> AsyncIterator[None]:
        """Let the deadlines of a stop pass, on a loop without virtual time."""
        if isinstance(asyncio.get_running_loop(), VirtualLoop):
            yield
            return

        async def drive() -> None:
            while True:
                await self._settle()
                self.clock.jump()

        driver = asyncio.create_task(drive())
        try:
            yield
        finally:
            driver.cancel()
