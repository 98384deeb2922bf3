"""The block that owns the actors."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
import weakref
from concurrent.futures import ProcessPoolExecutor
from typing import Any, cast

import anyio
import pytest

from actors import (
    Actor,
    ActorFailed,
    ActorStopped,
    AskTimeout,
    MailboxFull,
    NameTaken,
    NoReply,
    NotAChild,
    SelfDeadlock,
    Spec,
    Started,
    StartFailed,
    StashFull,
    Stopping,
    StrayCancellation,
    System,
    SystemClosed,
)
from actors.loop._cancellations import Cancellations
from actors.loop._tasks import Tasks
from actors.testing import TestKit
from tests.actors.helpers import Boom, Call, Do, Silent, boom, note


@pytest.mark.parametrize("options", [{"name": ""}, {"name": "a/b"}, {"ask_timeout": 0}, {"stall_after": 0}])
def test_an_impossible_system_is_refused(options: dict[str, Any]) -> None:
    """Names without a slash, times above nothing."""
    with pytest.raises(ValueError, match="must be"):
        System(**{"name": "s", **options})


async def test_outside_its_block_a_system_spawns_nothing() -> None:
    """Before, after, and while it is being left."""
    system = System("s")
    with pytest.raises(SystemClosed, match="actor system 's' is not open"):
        await system.spawn(Spec(Silent), "a")
    late: list[SystemClosed] = []

    async def spawn(me: Do, _: Stopping) -> None:
        try:
            await system.spawn(Spec(Silent), "late")
        except SystemClosed as error:
            late.append(error)

    async with system:
        await system.spawn(Spec(lambda: Do(on={Stopping: spawn})), "a")
    with pytest.raises(SystemClosed):
        await system.spawn(Spec(Silent), "a")
    assert [error.name for error in late] == ["s"]
    with pytest.raises(SystemClosed):
        _ = TestKit().clock


async def test_a_system_is_entered_once() -> None:
    """It is a block, not a service to be restarted."""
    system = System("s")
    async with system:
        pass
    with pytest.raises(RuntimeError, match="already been entered"):
        async with system:
            pass


async def test_failures_reach_the_caller_as_a_group_with_actor_paths() -> None:
    """The body is cancelled, and `except*` finds the root cause."""
    with pytest.raises(ExceptionGroup, match="actor system 's' failed") as caught:
        async with System("s") as system:
            ref: Any = await system.spawn(Spec(Silent), "a")
            ref.tell(boom)
            await asyncio.Event().wait()
    boomed, rest = caught.value.split(Boom)
    assert boomed is not None
    assert rest is None
    (failed,) = boomed.exceptions
    assert isinstance(failed, ActorFailed)
    assert failed.path == "/s/a"
    assert [type(error) for error in failed.exceptions] == [Boom]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_several_failures_are_all_in_the_group_and_the_bodys_error_too() -> None:
    """Nothing is lost: neither the second failure nor the error of the body."""
    with pytest.raises(ExceptionGroup) as caught:
        async with System("s") as system:
            ref: Any = await system.spawn(Spec(Silent), "a")
            await system.spawn(Spec(lambda: Do(on={Stopping: boom})), "b")
            ref.tell(boom)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise KeyError("body") from None
    kinds = [(type(error), getattr(error, "path", None)) for error in caught.value.exceptions]
    assert kinds == [(ActorFailed, "/s/a"), (ActorFailed, "/s/b"), (KeyError, None)]


async def test_a_second_failure_while_the_system_ends_does_not_cancel_its_caller() -> None:
    """Failures during the stop are collected, not delivered as cancellations."""
    with pytest.raises(ExceptionGroup) as caught:
        async with System("s") as system:
            await system.spawn(Spec(lambda: Do(on={Stopping: boom})), "a")
            await system.spawn(Spec(lambda: Do(on={Stopping: boom})), "b")
    assert [getattr(error, "path", None) for error in caught.value.exceptions] == ["/s/b", "/s/a"]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_the_bodys_error_passes_when_no_actor_failed() -> None:
    """The block adds nothing to an error that is not its own."""
    with pytest.raises(KeyError, match="body"):
        async with System("s") as system:
            await system.spawn(Spec(Silent), "a")
            raise KeyError("body")


async def test_a_failed_start_may_be_caught_in_the_body() -> None:
    """It was reported to the spawner, so it does not fail the system."""
    async with System("s") as system:
        with pytest.raises(StartFailed):
            await system.spawn(Spec(lambda: Do(on={Started: boom})), "a")


async def test_cancelling_the_outer_task_stops_every_actor_and_leaves_nothing() -> None:
    """No task, no thread, no pending timer, and CancelledError goes on."""
    log: list[Any] = []
    before = asyncio.all_tasks()
    threads = set(threading.enumerate())
    up = asyncio.Event()

    async def start(me: Do, _: Started) -> None:
        await me.ctx.spawn(Spec(lambda: Do(log, note(Stopping))), "child")
        me.ctx.timers.every("tick", 1000, "tick")
        me.ctx.pipe(asyncio.Event().wait(), str, str)
        await me.ctx.blocking(int)

    async def main() -> None:
        async with System("s") as system:
            ref: Any = await system.spawn(Spec(lambda: Do(log, {Started: start, **note(Stopping)}), executor="own"), "a")
            shared: Any = await system.spawn(Spec(Do), "shared")
            await shared.ask(Call, lambda me: me.ctx.blocking(int))
            ref.tell(lambda _: asyncio.get_running_loop().create_future())
            up.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(main())
    await up.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == [Stopping("shutdown"), Stopping("shutdown")]
    assert asyncio.all_tasks() == before
    for thread in set(threading.enumerate()) - threads:
        thread.join(10)
    assert {thread for thread in threading.enumerate() if not thread.name.startswith("asyncio")} <= threads
    loop = asyncio.get_running_loop()
    assert [timer for timer in getattr(loop, "_scheduled", ()) if not timer.cancelled()] == []


async def test_a_cancellation_wins_over_failures_that_were_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The caller must see that its cancellation worked; the failure stands in the log."""
    up = asyncio.Event()

    async def main() -> None:
        async with System("s") as system:
            await system.spawn(Spec(lambda: Do(on={Stopping: boom})), "a")
            up.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(main())
    await up.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "actor /s/a failed" in caplog.text


async def test_a_cancellation_from_outside_and_a_failure_at_once_is_a_cancellation() -> None:
    """The system's own interruption is told from that of another."""
    entered: list[Any] = []

    async def main() -> None:
        async with System("s") as system:
            ref: Any = await system.spawn(Spec(Silent), "a")
            ref.tell(boom)
            entered.append(system)
            try:
                await asyncio.Event().wait()
            finally:
                task.cancel()

    task = asyncio.create_task(main())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(entered) == 1


def test_a_loop_that_ends_takes_its_actors_along() -> None:
    """asyncio.run cancels all tasks when its main one has failed: actors end in order even then."""
    log: list[Any] = []

    async def main() -> None:
        system = System("s")
        await system.__aenter__()
        await system.spawn(Spec(lambda: Do(log, note(Stopping))), "a")
        raise KeyError("left open")

    with pytest.raises(KeyError):
        asyncio.run(main())
    assert log == [Stopping("shutdown")]
    for thread in threading.enumerate():
        if thread.name.startswith("actors-"):
            thread.join(60)
            assert not thread.is_alive(), thread.name


async def test_an_ended_actor_is_garbage() -> None:
    """The framework keeps nothing of an actor's object once it has ended."""

    class Big(Actor[Any]):
        def receive(self, message: Any, /) -> None:
            self.mine = message

    gone: list[weakref.ref[Any]] = []

    def make() -> Big:
        big = Big()
        gone.append(weakref.ref(big))
        return big

    async with System("s", stall_after=None) as system:
        ref = await system.spawn(Spec(make), "a")
        ref.tell("x")
        await asyncio.sleep(0)
        await system.stop(ref)
        gc.collect()
        assert gone[0]() is None
        assert (await system.terminated(ref)).cause is None


async def test_a_cancellation_in_the_last_moment_leaves_nothing_either() -> None:
    """Wherever in the end it comes: no thread, no timer, no task."""
    threads = set(threading.enumerate())
    for turns in range(30):

        async def main() -> None:
            async with System("s", stall_after=60) as system:
                ref: Any = await system.spawn(Spec(Do), "a")
                await ref.ask(Call, lambda me: me.ctx.spawn(Spec(Do), "child"))

        task = asyncio.create_task(main())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert set(threading.enumerate()) <= threads


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_request_to_end_the_process_is_not_lost_in_a_group(error: type[BaseException]) -> None:
    """An error that is no Exception goes on by itself, from the body or from a handler, and nothing is left."""
    threads = set(threading.enumerate())

    def end(_: object) -> None:
        raise error

    async def from_the_body() -> None:
        async with System("s") as system:
            await system.spawn(Spec(lambda: Do(on={Stopping: boom})), "a")
            raise error

    async def from_a_handler() -> None:
        async with System("s") as system:
            ref: Any = await system.spawn(Spec(Silent), "a")
            ref.tell(end)
            await asyncio.Event().wait()

    for main in (from_the_body, from_a_handler):
        with pytest.raises(error):
            asyncio.run(main())
        assert set(threading.enumerate()) <= threads
    # asyncio complains of the tasks that such an error has torn down; here, where the complaint is captured.
    gc.collect()


async def test_the_dead_keep_nobody_alive() -> None:
    """A ref to an ended actor does not keep its watchers alive."""
    async with System("s", stall_after=None) as system:
        watched: Any = await system.spawn(Spec(Do), "watched")
        watcher: Any = await system.spawn(Spec(Do), "watcher")
        await watcher.ask(Call, lambda me: me.ctx.watch(watched))
        await system.stop(watched)
        assert watched._inbox.owner.forget_watchers() == ()


def test_errors_survive_pickling() -> None:
    """With their text and their facts: jobs in other processes may raise them."""
    errors: list[Any] = [
        ActorStopped("/s/a"),
        AskTimeout("/s/a", 1.5, "idle"),
        MailboxFull("/s/a", 7),
        NameTaken("/s/a"),
        NoReply("/s/a"),
        NotAChild("/s/a", "/s/b"),
        SelfDeadlock("/s/a", "ask"),
        StartFailed("/s/a"),
        StashFull("/s/a", 7),
        StrayCancellation("/s/a"),
        SystemClosed("s"),
        ActorFailed("/s/a", [Boom("boom")]),
    ]
    for error in errors:
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - its own
        assert (type(again), str(again)) == (type(error), str(error))
        assert {key: value for key, value in vars(again).items() if key != "exceptions"} == vars(error)


async def test_an_error_out_of_a_task_is_told_at_once_and_raised_at_the_end() -> None:
    """A bug of the framework itself must not be lost; the first one counts."""
    told: list[bool] = []
    tasks = Tasks(asyncio.get_running_loop(), lambda: told.append(True))

    async def broken(error: Exception) -> None:
        raise error

    tasks.start(broken(Boom("first")), "first")
    tasks.start(broken(KeyError("second")), "second")
    with pytest.raises(Boom, match="first"):
        await tasks.join(Cancellations())
    assert told == [True]


async def test_cancelling_the_wait_for_all_tasks_cancels_them_and_waits_on() -> None:
    """Until none is left, however often."""
    ended: list[int] = []
    tasks = Tasks(asyncio.get_running_loop(), boom)

    async def stubborn() -> None:
        for n in range(2):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append(n)

    tasks.start(stubborn(), "stubborn")
    join = asyncio.create_task(tasks.join(Cancellations()))
    for _ in range(2):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        join.cancel()
    with pytest.raises(asyncio.CancelledError):
        await join
    assert ended == [0, 1]
    await tasks.join(Cancellations())


async def test_a_scope_that_repeats_its_cancellation_lets_actors_clean_up() -> None:
    """As those of anyio do, in each turn of the loop: a repetition does not make the stop hard."""
    log: list[str] = []

    class Client(Actor[Any]):
        async def signal(self, signal: Any) -> None:
            if isinstance(signal, Stopping):
                await anyio.sleep(0.01)
                log.append(f"{self.ctx.path} closed")

        def receive(self, _: Any) -> None:
            """Have nothing to do."""

    with anyio.CancelScope() as scope:
        async with System("s", stall_after=None) as system:
            for name in ("a", "b"):
                await system.spawn(Spec(Client), name)
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert sorted(log) == ["/s/a closed", "/s/b closed"]


async def test_an_executor_that_runs_no_threads_is_refused() -> None:
    """A job takes its actor's context variables along, which a process cannot."""
    wrong: Any = "threads"
    with pytest.raises(ValueError, match="executor must be None or an Executor, is 'threads'"):
        System("s", executor=wrong)
    with pytest.raises(ValueError, match="executor must be 'inline', 'threads' or an Executor, is 'thread'"):
        TestKit(executor=cast("Any", "thread"))
    with ProcessPoolExecutor(1) as pool:
        for refused in (lambda: Spec(Do, executor=pool), lambda: System("s", executor=pool)):
            with pytest.raises(TypeError, match=r"executor must run jobs in threads, .* work in other processes"):
                refused()
