"""An ask of an idle actor: answered in the asker's step, with all that a turn of the mailbox promises."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors import Actor, ActorStopped, Message, Reply, Restart, Resume, Spec, System
from actors.events import Failed
from actors.loop import LoopDispatch
from tests.actors.helpers import Boom

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="the task's context is unknown before Python 3.12")

WHO: ContextVar[str] = ContextVar("who", default="nobody")


class Run(Message, frozen=True):
    """Call the function with the actor, and reply with its result."""

    reply: Reply[Any]
    do: Callable[[Any], Any]


class Plain(Actor[Any]):
    """Handle each message at once, without `async`."""

    def __init__(self) -> None:
        self.log: list[Any] = []

    def receive(self, message: Any, /) -> None:
        if isinstance(message, Run):
            message.reply.tell(message.do(self))
        else:
            self.log.append(message)


class Waiting(Plain):
    """Yield to the loop before each message is handled."""

    async def receive(self, message: Any, /) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super().receive(message)


async def test_an_idle_actor_answers_within_the_ask() -> None:
    """No task is woken: the reply is there before the ask is awaited."""
    async with System("test") as system:
        ref = await system.spawn(Spec(Plain), "a")
        await asyncio.sleep(0)
        done: list[str] = []
        ask = ref.ask(Run, lambda me: done.append(me.ctx.path))
        assert done == ["/test/a"]
        assert await ask is None
        assert system.tree()[0].processed == 1


async def test_the_handler_runs_in_the_actors_task_and_context() -> None:
    """The task and the context variables are the actor's; the asker's are as before."""
    async with System("test") as system:
        WHO.set("asker")
        ref = await system.spawn(Spec(Plain), "a")
        await asyncio.sleep(0)
        me = asyncio.current_task()
        WHO.set("asker, later")
        assert await ref.ask(Run, lambda _: WHO.get()) == "asker"
        await ref.ask(Run, lambda _: WHO.set("actor"))
        task = await ref.ask(Run, lambda _: asyncio.current_task())
        assert task is not me
        assert task.get_name() == "/test/a"
        assert (asyncio.current_task(), WHO.get()) == (me, "asker, later")
        assert await ref.ask(Run, lambda _: WHO.get()) == "actor"


async def test_an_async_handler_runs_in_its_own_task() -> None:
    """A coroutine is handed to the actor's task, and later asks go through the mailbox."""
    async with System("test") as system:
        ref = await system.spawn(Spec(Waiting), "a")
        await asyncio.sleep(0)
        for number in range(3):
            task = await ref.ask(Run, lambda _: asyncio.current_task())
            assert task.get_name() == "/test/a"
            assert system.tree()[0].processed == number + 1


@pytest.mark.parametrize("decision", [Restart(), Resume()])
async def test_a_failure_is_supervised_as_in_a_turn(decision: Restart | Resume) -> None:
    """The ask raises the error, the event names the message, and the actor goes on."""

    def fail(_: Plain) -> None:
        raise Boom

    events: list[Failed] = []
    async with System("test") as system:
        system.subscribe(Failed, events.append)
        ref = await system.spawn(Spec(Plain, supervise=lambda _: decision), "a")
        await asyncio.sleep(0)
        ref.tell("kept")
        await ref.ask(Run, lambda _: None)
        with pytest.raises(Boom):
            await ref.ask(Run, fail)
        kept = await ref.ask(Run, lambda me: list(me.log))
    assert kept == (["kept"] if isinstance(decision, Resume) else [])
    assert [type(event.message) for event in events] == [Run]


async def test_earlier_messages_come_first() -> None:
    """A message that waits in the mailbox is handled before a later ask."""
    async with System("test") as system:
        ref = await system.spawn(Spec(Plain), "a")
        await asyncio.sleep(0)
        ref.tell(1)
        assert await ref.ask(Run, lambda me: list(me.log)) == [1]


async def test_an_actor_is_never_entered_twice() -> None:
    """An ask of itself, or of another actor that asks back, is queued."""
    async with System("test") as system:
        first, second = [await system.spawn(Spec(Plain), name) for name in ("a", "b")]
        await asyncio.sleep(0)
        log: list[str] = []
        asks: list[Any] = []

        def inner(_: Plain) -> None:
            log.append("inner")

        def outer(_: Plain) -> None:
            asks.extend((first.ask(Run, inner), second.ask(Run, lambda _: asks.append(first.ask(Run, inner)))))
            log.append("outer")

        await first.ask(Run, outer)
        assert log == ["outer"]
        while asks:
            await asks.pop(0)
        assert log == ["outer", "inner", "inner"]


async def test_an_asker_does_not_hold_up_the_loop() -> None:
    """After a turn the next ask goes through the mailbox, so that others run."""
    async with System("test") as system:
        ref = await system.spawn(Spec(Plain), "a")
        await asyncio.sleep(0)
        stop = asyncio.get_running_loop().call_soon
        reached: list[int] = []
        stop(reached.append, 1)
        while not reached:
            await ref.ask(Run, lambda _: None)


async def test_a_handler_that_is_cancelled_before_it_ran_leaves_no_coroutine() -> None:
    """The ask fails, and no coroutine is left that was never awaited."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with System("test") as system:
            ref = await system.spawn(Spec(Waiting), "a")
            await asyncio.sleep(0)
            ask = ref.ask(Run, lambda _: None)
            await system.kill(ref)
            with pytest.raises(ActorStopped):
                await ask


async def test_a_handler_may_unstash() -> None:
    """Messages that come back to the mailbox wake the actor, which sleeps while its ask is handled."""

    class Stashing(Plain):
        def receive(self, message: Any, /) -> None:
            if isinstance(message, Run):
                self.ctx.unstash()
                message.reply.tell(None)
            elif message in self.log:
                self.log.append("again")
                done.set()
            else:
                self.log.append(message)
                self.ctx.stash(message)

    done = asyncio.Event()
    async with System("test") as system:
        ref = await system.spawn(Spec(Stashing), "a")
        ref.tell("later")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await ref.ask(Run, lambda _: None)
        await asyncio.wait_for(done.wait(), 10)


def test_an_ask_between_two_runs_of_the_loop_waits_for_the_next() -> None:
    """No handler runs without a running loop; the reply comes with the next run."""
    with asyncio.Runner() as runner:
        system = System("test")

        async def begin() -> Any:
            await system.__aenter__()
            ref = await system.spawn(Spec(Plain), "a")
            await asyncio.sleep(0)
            return ref

        ref = runner.run(begin())
        ask = ref.ask(Run, lambda _: "answer")

        async def end() -> Any:
            found = await ask
            await system.__aexit__(None, None, None)
            return found

        assert runner.run(end()) == "answer"


async def test_a_failure_keeps_nothing_of_its_asker() -> None:
    """The error has no context of the asker's own handling, and its frames no reference to the asker's task."""

    def fail(_: Plain) -> None:
        raise Boom

    failures: list[tuple[Exception, BaseException | None]] = []
    async with System("test") as system:
        system.subscribe(Failed, lambda event: failures.append((event.error, event.error.__context__)))
        ref = await system.spawn(Spec(Plain, supervise=lambda _: Resume()), "a")
        await asyncio.sleep(0)

        async def ask() -> None:
            try:
                raise KeyError("of the asker")
            except KeyError:
                with contextlib.suppress(Boom):
                    await ref.ask(Run, fail)

        task = asyncio.create_task(ask())
        await task
        ((error, context),) = failures
        assert context is None
        frame = error.__traceback__
        while frame is not None:
            assert task not in frame.tb_frame.f_locals.values()
            frame = frame.tb_next


async def test_a_task_in_the_actors_own_context_may_ask() -> None:
    """The context is entered already, so the ask waits in the mailbox."""
    async with System("test") as system:
        ref = await system.spawn(Spec(Plain), "a")
        await asyncio.sleep(0)
        task = await ref.ask(Run, lambda _: asyncio.current_task())

        async def ask() -> Any:
            return await ref.ask(Run, lambda _: "answer")

        assert await asyncio.create_task(ask(), context=task.get_context()) == "answer"


async def test_a_callback_may_ask() -> None:
    """An asker without a task gets its reply, too."""
    async with System("test") as system:
        ref = await system.spawn(Spec(Plain), "a")
        await asyncio.sleep(0)
        asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: asked.set_result(ref.ask(Run, lambda _: asyncio.current_task())))
        task = await (await asked)
        assert task.get_name() == "/test/a"


async def test_a_failure_counts_though_its_actor_is_killed() -> None:
    """The kill comes before the task takes over: the ask raises the error, and the event tells of it."""

    def fail(_: Plain) -> None:
        try:
            raise ValueError
        except ValueError:
            raise Boom from None

    failures: list[Exception] = []
    async with System("test") as system:
        system.subscribe(Failed, lambda event: failures.append(event.error))
        ref = await system.spawn(Spec(Plain), "a")
        await asyncio.sleep(0)
        try:
            raise KeyError("of the asker")
        except KeyError:
            ask = ref.ask(Run, fail)
        await system.kill(ref)
        with pytest.raises(Boom):
            await ask
    assert [type(error) for error in failures] == [Boom]


async def test_an_awaitable_of_a_killed_actor_is_dropped() -> None:
    """A handler may return a future; when the actor is killed before it waits, the ask fails."""

    class Later(Plain):
        def receive(self, message: Any, /) -> Any:
            return asyncio.get_running_loop().create_future()

    async with System("test") as system:
        ref = await system.spawn(Spec(Later), "a")
        await asyncio.sleep(0)
        ask = ref.ask(Run, lambda _: None)
        await system.kill(ref)
        with pytest.raises(ActorStopped):
            await ask


class Queued(LoopDispatch):
    """The order of the event loop, with each ask through the mailbox."""

    __slots__ = ()

    def enter(self) -> float:
        return 0.0


Step = tuple[Literal["tell", "ask", "later", "fail", "yield"], int]


def _note(number: int, actor: Plain) -> int:
    actor.log.append(number)
    return number


async def _outcome(steps: list[Step], dispatch: LoopDispatch) -> list[Any]:
    """Run the steps against two plain actors and one that waits; return replies and logs."""

    def fail(_: Plain) -> None:
        raise Boom

    outcome: list[Any] = []
    async with System("test") as system:
        core = system._core
        assert core is not None
        core.dispatch = dispatch
        refs = [await system.spawn(Spec(kind, supervise=lambda _: Resume()), f"a{place}") for place, kind in enumerate((Plain, Plain, Waiting))]
        pending = []
        for number, (step, place) in enumerate(steps):
            ref = refs[place]
            if step == "tell":
                ref.tell(number)
            elif step == "yield":
                await asyncio.sleep(0)
            elif step == "later":
                pending.append(ref.ask(Run, partial(_note, number)))
            else:
                try:
                    outcome.append(await ref.ask(Run, fail if step == "fail" else lambda me: tuple(me.log)))
                except Boom:
                    outcome.append(Boom)
        outcome += [await ask for ask in pending]
        outcome += [await ref.ask(Run, lambda me: tuple(me.log)) for ref in refs]
    return outcome


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(["tell", "ask", "later", "fail", "yield"]), st.integers(0, 2)), max_size=30))
def test_replies_and_order_are_those_of_the_mailbox(steps: list[Step]) -> None:
    """Whether asks are answered at once or through the mailbox, replies and logs are the same."""
    assert asyncio.run(_outcome(steps, LoopDispatch())) == asyncio.run(_outcome(steps, Queued()))
