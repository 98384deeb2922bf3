"""Work beside the messages: awaitables and threads."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from typing import Any

import pytest

from actors import Abandoned, Failed, Resume, Spec, System
from actors.loop._threads import ThreadLane
from actors.testing import TestKit
from tests.actors.helpers import Boom, Call, Do, boom, do, restart_at_once
from tests.waiting import until


def as_text(outcome: object) -> str:
    return f"{type(outcome).__name__}: {outcome}"


async def value(it: Any) -> Any:
    return it


async def failing() -> Any:
    boom()


@pytest.mark.actors(runs=5)
async def test_a_pipe_turns_its_outcome_into_a_message(actor_kit: TestKit) -> None:
    """done(result) or failed(error), while other messages are handled."""
    future = asyncio.get_running_loop().create_future()
    ref, log = await do(actor_kit)
    ref.tell(lambda me: me.ctx.pipe(future, as_text, as_text))
    ref.tell("meanwhile")
    await actor_kit.quiesce()
    assert log == ["meanwhile"]
    future.set_result(7)
    await actor_kit.quiesce()
    ref.tell(lambda me: me.ctx.pipe(failing(), as_text, as_text))
    await actor_kit.quiesce()
    assert log == ["meanwhile", "int: 7", "Boom: boom"]


@pytest.mark.actors(runs=5)
async def test_a_pipe_of_something_cancelled_has_failed(actor_kit: TestKit) -> None:
    """A cancellation that is not the actor's own is an error like any other."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    ref, log = await do(actor_kit)
    ref.tell(lambda me: me.ctx.pipe(future, as_text, as_text))
    await actor_kit.quiesce()
    assert log == ["StrayCancellation: a handler of /test/a awaited something that was cancelled; catch CancelledError around that await"]


@pytest.mark.actors(runs=5)
async def test_the_function_of_a_pipe_is_the_actors_own_code(actor_kit: TestKit) -> None:
    """An error of it is a failure of the actor."""
    ref, _ = await do(actor_kit)
    ref.tell(lambda me: me.ctx.pipe(value(1), boom, boom))
    assert isinstance((await actor_kit.probe(object).terminated(ref)).cause, Boom)


@pytest.mark.actors(runs=5)
async def test_a_stop_cancels_pipes_even_those_that_have_not_begun(actor_kit: TestKit) -> None:
    """No task and no un-awaited coroutine is left."""
    cancelled: list[bool] = []

    async def wait() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cancelled.append(True)

    ref, _ = await do(actor_kit)
    ref.tell(lambda me: me.ctx.pipe(wait(), as_text, as_text))
    await actor_kit.quiesce()

    def pipe_and_stop(me: Do) -> None:
        me.ctx.pipe(value(1), as_text, as_text)
        me.ctx.stop()

    ref.tell(pipe_and_stop)
    await actor_kit.terminated(ref)
    await actor_kit.quiesce()
    assert cancelled == [True]


@pytest.mark.actors(runs=5)
async def test_blocking_returns_or_raises_as_the_job_does(actor_kit: TestKit) -> None:
    """The actor's messages wait meanwhile; arguments and context variables reach the job."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    def job(number: int, *, text: str) -> str:
        return f"{number} {text} {variable.get()}"

    async def work(me: Do) -> None:
        variable.set("set")
        me.log.append(await me.ctx.blocking(job, 1, text="a"))
        try:
            await me.ctx.blocking(boom)
        except Boom:
            me.log.append("raised")

    ref, log = await do(actor_kit)
    ref.tell(work)
    ref.tell("behind")
    await actor_kit.quiesce()
    assert log == ["1 a set", "raised", "behind"]


async def test_an_actor_with_its_own_thread_always_gets_that_one() -> None:
    """executor="own" is one thread for the actor's life, and none afterwards."""
    async with System("s", stall_after=None) as system:
        ref: Any = await system.spawn(Spec(Do, executor="own"), "own")
        threads = {await ref.ask(Call, lambda me: me.ctx.blocking(threading.current_thread)) for _ in range(20)}
        assert [thread.name for thread in threads] == ["/s/own-0"]
        (thread,) = threads
        await system.stop(ref)
        assert not thread.is_alive()


async def test_actors_share_the_systems_pool_or_bring_their_own() -> None:
    """The default is the system's pool; an executor that is handed in is used, and left to its owner."""
    with ThreadLane("brought", 1) as brought:
        async with System("s", stall_after=None) as system:
            names = []
            for name, options in (("shared", {}), ("brought", {"executor": brought})):
                ref: Any = await system.spawn(Spec(Do, **options), name)  # type: ignore[arg-type]
                names.append((await ref.ask(Call, lambda me: me.ctx.blocking(threading.current_thread))).name)
        assert names == ["s-0", "brought-0"]
        async with System("s", executor=brought, stall_after=None) as system:
            ref = await system.spawn(Spec(Do), "a")
            assert (await ref.ask(Call, lambda me: me.ctx.blocking(threading.current_thread))).name == "brought-0"
        assert brought.submit(int).result() == 0


async def test_a_job_that_outlives_its_stop_deadline_is_abandoned_and_its_late_result_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """A thread cannot be cancelled: the actor ends, the thread goes on, nobody gets its result; its late error is logged."""
    release = threading.Event()
    begun = {"a": threading.Event(), "b": threading.Event()}

    def job(name: str) -> str:
        begun[name].set()
        release.wait(30)
        if name == "b":
            boom()
        return "late"

    logs: list[Any] = []
    abandoned: list[Abandoned] = []
    async with System("s", stall_after=None) as system:
        system.subscribe(Abandoned, abandoned.append)
        for name, event in begun.items():
            ref: Any = await system.spawn(Spec(lambda: Do(logs), stop_within=0.01), name)
            ref.tell(_blocking(lambda name=name: job(name)))
            await asyncio.to_thread(event.wait, 30)
    assert [event.path for event in abandoned] == ["/s/b", "/s/a"]
    assert "job" in abandoned[0].job or "lambda" in abandoned[0].job
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("s-")]
    assert len(threads) == 2
    release.set()
    for thread in threads:
        thread.join(10)
    assert logs == []
    assert "failed later: Boom('boom')" in caplog.text


def _blocking(job: Any) -> Any:
    async def work(me: Do) -> None:
        me.log.append(await me.ctx.blocking(job))

    return work


async def test_a_job_that_has_not_begun_is_cancelled_not_abandoned() -> None:
    """A wait for a thread just ends."""
    release = threading.Event()
    with ThreadLane("busy", 1) as lane:
        lane.submit(release.wait, 30)
        async with System("s", stall_after=None) as system:
            abandoned: list[Abandoned] = []
            system.subscribe(Abandoned, abandoned.append)
            ref: Any = await system.spawn(Spec(Do, executor=lane), "a")
            ran: list[int] = []
            ref.tell(_blocking(lambda: ran.append(1)))
            await until(lambda: system.tree()[0].current is not None)
            await system.kill(ref)
            assert abandoned == []
        release.set()
    assert ran == []


def test_a_thread_lane_runs_jobs_in_order_with_no_more_threads_than_told() -> None:
    """First come, first served; idle threads are used before new ones are made."""
    done: list[int] = []
    with ThreadLane("lane", 1) as lane:
        futures = [lane.submit(done.append, n) for n in range(50)]
        for future in futures:
            future.result(10)
        assert done == list(range(50))
        assert lane.submit(threading.current_thread).result(10).name == "lane-0"
    with ThreadLane("lane", 3) as lane:
        barrier = threading.Barrier(3)
        places = [lane.submit(barrier.wait, 10) for _ in range(6)]
        assert {place.result(10) for place in places} == {0, 1, 2}
        assert len(lane._threads) == 3


def test_a_thread_lane_gives_errors_to_the_waiting_caller() -> None:
    """Exceptions that would end a thread, such as SystemExit, reach the caller as well."""
    with ThreadLane("lane", 1) as lane:
        for error in (Boom, SystemExit):

            def job(error: type[BaseException] = error) -> None:
                raise error

            assert isinstance(lane.submit(job).exception(10), error)


def test_a_closed_thread_lane_takes_nothing_and_drops_waiting_jobs_if_told_so() -> None:
    """After shutdown submit raises; cancelled jobs never run."""
    begun, release = threading.Event(), threading.Event()
    ran: list[int] = []
    lane = ThreadLane("lane", 1)

    def first() -> None:
        begun.set()
        release.wait(10)

    lane.submit(first)
    assert begun.wait(10)
    waiting = lane.submit(ran.append, 1)
    cancelled = lane.submit(ran.append, 2)
    cancelled.cancel()
    lane.shutdown(wait=False, cancel_futures=True)
    assert waiting.cancelled()
    release.set()
    lane.shutdown()
    assert ran == []
    with pytest.raises(RuntimeError, match="threads of lane are shut down"):
        lane.submit(int)


def test_a_job_that_is_cancelled_while_it_waits_is_passed_over() -> None:
    """A cancelled future is not run, and harms no other."""
    begun, release = threading.Event(), threading.Event()
    ran: list[int] = []
    with ThreadLane("lane", 1) as lane:

        def first() -> None:
            begun.set()
            release.wait(10)

        lane.submit(first)
        assert begun.wait(10)
        lane.submit(ran.append, 1).cancel()
        last = lane.submit(ran.append, 2)
        release.set()
        last.result(10)
    assert ran == [2]


def test_an_abandoned_job_does_not_hold_up_the_end_of_the_process(pytester: pytest.Pytester) -> None:
    """The threads are daemons: the interpreter exits though a job hangs."""
    script = pytester.makepyfile(
        """
        import asyncio, threading
        from actors import Actor, Spec, System

        begun = threading.Event()

        class Hanging(Actor[str]):
            async def receive(self, message):
                await self.ctx.blocking(hang)

        def hang():
            begun.set()
            threading.Event().wait()

        async def main():
            async with System("s") as system:
                ref = await system.spawn(Spec(Hanging, stop_within=0.01), "hanging")
                ref.tell("go")
                await asyncio.to_thread(begun.wait)
            print("over")

        asyncio.run(main())
        """
    )
    result = pytester.runpython(script)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["over"])


@pytest.mark.actors(runs=5)
async def test_a_pipe_that_cleans_up_is_waited_for_and_cancelled_again_if_it_takes_too_long(actor_kit: TestKit) -> None:
    """An actor has not ended before its pipes have."""
    swallowed: list[int] = []

    async def stubborn() -> None:
        for n in range(3):
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                swallowed.append(n)

    ref, _ = await do(actor_kit, stop_within=1)
    ref.tell(lambda me: me.ctx.pipe(stubborn(), as_text, as_text))
    await actor_kit.quiesce()
    stop = asyncio.create_task(actor_kit.stop(ref))
    await actor_kit.clock.advance(0.5)
    assert not stop.done()
    await actor_kit.clock.advance(3)
    await stop
    assert swallowed == [0, 1, 2]


@pytest.mark.actors(runs=5)
async def test_a_pipe_started_by_an_incarnation_that_has_ended_is_dropped(actor_kit: TestKit) -> None:
    """A coroutine that runs on with an old context begins nothing."""
    contexts: list[Any] = []
    ref, log = await do(actor_kit, supervise=restart_at_once())
    ref.tell(lambda me: me.ctx.pipe(value("first"), as_text, as_text))
    ref.tell(lambda me: contexts.append(me.ctx))
    ref.tell(boom)
    await actor_kit.quiesce()
    contexts[0].pipe(value("late"), as_text, as_text)
    future = asyncio.get_running_loop().create_future()
    contexts[0].pipe(future, as_text, as_text)
    contexts[0].pipe(_Awaitable(), as_text, as_text)
    await actor_kit.quiesce()
    assert log in (["str: first"], [])
    assert future.cancelled()


class _Awaitable:
    def __await__(self) -> Any:
        yield


@pytest.mark.actors(runs=5)
async def test_a_failure_in_what_makes_the_message_has_no_message_yet(actor_kit: TestKit) -> None:
    """The event shows no private object in its place."""
    failed: list[Failed] = []
    actor_kit.subscribe(Failed, failed.append)
    ref, _ = await do(actor_kit, supervise=lambda _: Resume())
    ref.tell(lambda me: me.ctx.pipe(value(1), boom, boom))
    await actor_kit.quiesce()
    assert [event.message for event in failed] == [None]


async def test_a_job_that_raises_stop_iteration_fails_like_any_other() -> None:
    """Awaiting a future cannot raise it, so it comes as the cause of a RuntimeError."""
    for executor in ("own", "shared"):
        async with System("s", stall_after=None) as system:
            ref: Any = await system.spawn(Spec(Do, executor=executor, supervise=lambda _: Resume()), "a")
            with pytest.raises(RuntimeError, match="blocking job next of /s/a raised StopIteration"):
                await ref.ask(Call, lambda me: me.ctx.blocking(next, iter(())))


async def test_a_job_that_nobody_awaits_does_not_hold_up_the_end_of_the_system() -> None:
    """Threads that are at work are not joined."""
    release, begun = threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        release.wait(30)

    jobs: list[asyncio.Task[None]] = []
    async with System("s", stall_after=None) as system:
        ref: Any = await system.spawn(Spec(Do), "a")
        ref.tell(lambda me: jobs.append(asyncio.ensure_future(me.ctx.blocking(job))))
        await asyncio.to_thread(begun.wait, 30)
    assert not release.is_set()
    release.set()
    await asyncio.gather(*jobs)


@pytest.mark.actors(runs=5)
async def test_a_kill_while_pipes_clean_up_does_not_end_the_wait_for_them(actor_kit: TestKit) -> None:
    """It cancels them again; the actor has not ended before they have."""
    swallowed: list[int] = []

    async def stubborn() -> None:
        for n in range(3):
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                swallowed.append(n)

    ref, _ = await do(actor_kit, stop_within=1)
    ref.tell(lambda me: me.ctx.pipe(stubborn(), as_text, as_text))
    await actor_kit.quiesce()
    kills = []
    for times in (1, 2):
        kills.append(asyncio.create_task(actor_kit.kill(ref)))
        await actor_kit.quiesce()
        assert len(swallowed) == times
        assert not any(kill.done() for kill in kills)
    await actor_kit.clock.advance(3)
    await asyncio.gather(*kills)
    assert swallowed == [0, 1, 2]


@pytest.mark.actors(runs=5)
async def test_a_pipe_that_ends_after_its_incarnation_delivers_nothing(actor_kit: TestKit) -> None:
    """The incarnation's end holds even for a pipe that swallows its cancellation and returns a result."""

    async def stubborn() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.get_running_loop().create_future()
        return "late"

    ref, log = await do(actor_kit, supervise=restart_at_once())
    ref.tell(lambda me: me.ctx.pipe(stubborn(), as_text, as_text))
    await actor_kit.quiesce()
    ref.tell(boom)
    await actor_kit.quiesce()
    assert log == []


def test_a_thread_that_cannot_be_started_leaves_no_job_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is refused, does not run later, and the lane still ends."""
    ran: list[int] = []

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with ThreadLane("lane", 1) as lane:
        with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="can't start"):
            patch.setattr(threading.Thread, "start", refuse)
            lane.submit(ran.append, 1)
        lane.submit(ran.append, 2).result(10)
    assert ran == [2]
