"""Virtual time."""

from __future__ import annotations

import asyncio
import contextvars
import socket
import threading
import time
from math import inf
from typing import Any

import anyio
import pytest

from actors import Spec, System
from actors.testing import ManualClock, TestKit, VirtualLoop, run
from tests.actors.helpers import Call, Do, do


def on_virtual_loop(main: Any) -> Any:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def test_sleeps_and_timeouts_of_any_library_cost_no_time() -> None:
    """asyncio's and anyio's alike: the clock jumps when nothing else can happen."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(3600)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        with anyio.move_on_after(40):
            await anyio.sleep_forever()
        return loop.time()

    began = time.perf_counter()
    assert on_virtual_loop(main) == 3700
    assert time.perf_counter() - began < 30


def test_the_loop_jumps_only_when_nothing_is_ready() -> None:
    """Busy tasks come before time."""

    async def main() -> list[str]:
        order: list[str] = []

        async def busy() -> None:
            for n in range(5):
                await asyncio.sleep(0)
                order.append(f"busy {n}")

        async def late() -> None:
            await asyncio.sleep(0.001)
            order.append("late")

        await asyncio.gather(late(), busy())
        return order

    assert on_virtual_loop(main) == [f"busy {n}" for n in range(5)] + ["late"]


def test_idle_is_reached_without_a_jump() -> None:
    """A wait for idle ends before the next timer."""

    async def main() -> tuple[float, bool]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        timer = asyncio.create_task(asyncio.sleep(5))
        cancelled = asyncio.create_task(loop.idle())
        await asyncio.sleep(0)
        cancelled.cancel()
        await loop.idle()
        return loop.time(), timer.done()

    assert on_virtual_loop(main) == (0, False)


def test_a_cancelled_timer_is_not_waited_for() -> None:
    """Time does not go to where nothing is due any more."""

    async def main() -> tuple[float, list[str]]:
        loop = asyncio.get_running_loop()
        fired: list[str] = []
        handle = loop.call_later(10, fired.append, "never")
        assert handle.when() == 10
        handle.cancel()
        assert handle.cancelled()
        loop.call_at(20, fired.append, "at 20")
        await asyncio.sleep(30)
        return loop.time(), fired

    assert on_virtual_loop(main) == (30, ["at 20"])


def test_a_timer_that_is_cancelled_in_the_instant_it_is_due_does_not_fire() -> None:
    """As with asyncio's own."""

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        fired: list[str] = []
        second: Any = None

        def first() -> None:
            fired.append("first")
            loop.clock.jump()  # type: ignore[attr-defined]
            second.cancel()

        loop.call_later(1, first)
        second = loop.call_later(1, fired.append, "second")
        await asyncio.sleep(2)
        return fired

    assert on_virtual_loop(main) == ["first"]


def test_timers_keep_their_context() -> None:
    """A context given to call_later is the one that the call sees."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    async def main() -> list[str]:
        seen: list[str] = []
        context = contextvars.copy_context()
        context.run(variable.set, "set")
        asyncio.get_running_loop().call_later(1, lambda: seen.append(variable.get()), context=context)
        await asyncio.sleep(2)
        return seen

    assert on_virtual_loop(main) == ["set"]


def test_timers_run_in_the_context_that_sets_them() -> None:
    """As on a loop of asyncio: a variable of the caller at that time is what the call sees."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    async def main() -> list[str]:
        seen: list[str] = []
        variable.set("set")
        asyncio.get_running_loop().call_later(1, lambda: seen.append(variable.get()))
        asyncio.get_running_loop().call_at(1.5, lambda: seen.append(variable.get()))
        variable.set("set later")
        await asyncio.sleep(2)
        return seen

    assert on_virtual_loop(main) == ["set", "set"]


def test_time_stands_still_while_a_thread_works() -> None:
    """A job in an executor is waited for in real time, timeouts around it do not pass meanwhile."""
    release = threading.Event()

    async def main() -> tuple[bool, float]:
        loop = asyncio.get_running_loop()
        asyncio.get_running_loop().call_soon(threading.Timer(0.01, release.set).start)
        async with asyncio.timeout(1):
            got = await loop.run_in_executor(None, release.wait, 30)
        return got, loop.time()

    assert on_virtual_loop(main) == (True, 0)


def test_time_stands_still_while_a_socket_may_bring_something() -> None:
    """With real input open the loop does not jump over it."""

    async def main() -> tuple[bytes, float]:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            threading.Timer(0.01, theirs.send, (b"x",)).start()
            async with asyncio.timeout(1):
                got = await loop.sock_recv(ours, 1)
        return got, loop.time()

    assert on_virtual_loop(main) == (b"x", 0)


async def test_advance_fires_in_due_order_and_waits_for_quiet_after_each(actor_kit: TestKit) -> None:
    """All consequences of one timer have happened before the next one fires."""
    ref, log = await do(actor_kit)

    def chain(me: Do) -> None:
        me.log.append(("first", me.ctx.time()))
        me.ctx.timers.once("second", 1, lambda me: me.log.append(("second", me.ctx.time())))

    actor_kit.clock.call_later(3, lambda: log.append(("third", actor_kit.clock.time())))
    ref.tell(lambda me: me.ctx.timers.once("first", 1, chain))
    await actor_kit.clock.advance(10)
    assert log == [("first", 1), ("second", 2), ("third", 3)]
    assert actor_kit.clock.time() == 10


async def test_time_does_not_go_back(actor_kit: TestKit) -> None:
    """advance takes no negative time, and no not-a-number."""
    for seconds in (-1, float("nan")):
        with pytest.raises(ValueError, match="time does not run backward"):
            await actor_kit.clock.advance(seconds)


async def test_a_clock_without_timers_does_not_jump() -> None:
    """Nothing due, nowhere to go."""

    async def quiet() -> None:
        return None

    clock = ManualClock(quiet)
    assert clock.jump() is False
    assert clock.next_due() is None
    await clock.advance(5)
    assert clock.time() == 5


def test_run_gives_a_kit_on_a_virtual_loop() -> None:
    """The test's outcome is run's outcome."""

    async def test(kit: TestKit) -> float:
        await kit.spawn(Spec(Do), "a")
        await asyncio.sleep(100)
        return kit.clock.time()

    assert run(test, seed=3) == 100


async def test_due_timers_fire_before_it_is_quiet(actor_kit: TestKit) -> None:
    """A timer without delay needs no time to go by."""
    ref, log = await do(actor_kit)
    ref.tell(lambda me: me.ctx.timers.once("k", 0, "due"))
    actor_kit.clock.call_later(-1, lambda: log.append("overdue"))
    await actor_kit.quiesce()
    assert sorted(log) == ["due", "overdue"]
    probe = actor_kit.probe(str)
    actor_kit.clock.call_later(-1, lambda: probe.tell("x"))
    assert await probe.expect(str) == "x"


def test_a_plain_system_on_a_virtual_loop_has_its_jobs_waited_for() -> None:
    """Time stands still for every job that goes through the loop."""
    release = threading.Event()

    async def main() -> tuple[bool, float]:
        async with System("s", stall_after=None) as system:
            ref: Any = await system.spawn(Spec(Do), "a")
            threading.Timer(0.01, release.set).start()
            got = await ref.ask(Call, lambda me: me.ctx.blocking(release.wait, 30))
            return got, asyncio.get_running_loop().time()

    assert on_virtual_loop(main) == (True, 0)


def test_debug_mode_does_not_take_a_jump_for_a_slow_callback(caplog: pytest.LogCaptureFixture) -> None:
    """Time that a test lets go by is nobody's slowness."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_debug(True)
        clock = loop.clock  # type: ignore[attr-defined]
        await clock.advance(100)
        await asyncio.sleep(10)

    on_virtual_loop(main)
    assert "took" not in caplog.text


def test_a_test_that_can_never_go_on_fails_with_the_tasks_that_wait() -> None:
    """The test fails at once with a list of waiting tasks, instead of hanging."""

    async def main() -> None:
        asyncio.get_running_loop().patience = 0.01  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match=r"deadlock: nothing is ready, scheduled or running, .*\n  <Task .*main\(\)"):
        on_virtual_loop(main)


def test_a_job_that_waits_for_virtual_time_is_a_deadlock_that_is_named() -> None:
    """Time stands still while the job runs, and the job waits for time."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.patience = 0.03  # type: ignore[attr-defined]
        await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(asyncio.sleep(1), loop).result(5))

    with pytest.raises(RuntimeError, match="deadlock: only jobs in threads are running"):
        on_virtual_loop(main)


def test_a_sleep_for_ever_is_no_timer() -> None:
    """The test that waits for nothing else fails, and the clock does not jump to infinity."""

    async def main() -> None:
        asyncio.get_running_loop().patience = 0.01  # type: ignore[attr-defined]
        await asyncio.sleep(inf)

    with pytest.raises(RuntimeError, match="deadlock: nothing is ready, scheduled or running"):
        on_virtual_loop(main)


def test_a_timer_that_sets_itself_again_without_delay_is_a_livelock_that_is_named() -> None:
    """The test fails with the timer's call, instead of turning for ever."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.clock.timers_at_once = 100  # type: ignore[attr-defined]

        def again() -> None:
            loop.call_later(0, again)

        again()
        await asyncio.sleep(1)

    with pytest.raises(RuntimeError, match=r"livelock: 101 timers without a delay were set while the time was 0 s.*again"):
        on_virtual_loop(main)


async def test_timers_without_delay_are_counted_anew_when_the_time_goes_on(actor_kit: TestKit) -> None:
    """A long test may have any number of them: only those that keep the time from going on count."""
    clock = actor_kit.clock
    clock.timers_at_once = 10
    for _ in range(5):
        for _ in range(8):
            clock.call_later(0, lambda: None)
        clock.call_later(0.5, lambda: None)
        await clock.advance(1)
    for _ in range(11):
        clock.call_later(0, lambda: None)
    with pytest.raises(RuntimeError, match="livelock: 11 timers"):
        clock.jump()
    clock.timers_at_once = 100


async def test_a_positive_delay_ends_later_than_now(actor_kit: TestKit) -> None:
    """Also one that is lost in rounding: code that waits until a deadline, again and again, arrives there."""
    clock = actor_kit.clock
    await clock.advance(65.08)
    clock.call_later(1e-30, lambda: None)
    assert clock.jump()
    assert 65.08 < clock.time() < 65.08 + 1e-9
