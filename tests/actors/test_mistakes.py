"""Mistakes that a type checker would find: the errors of those who use none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from math import nan
from typing import Any

import pytest

from actors import Actor, ActorFailed, Failed, Mailbox, Message, Reply, Restart, Resume, Spec, StartFailed, Stop, System, Terminated
from actors.testing import TestKit, run
from tests.actors.helpers import Call, Do, Keep, Silent, do

pytestmark = pytest.mark.actors(runs=2)

any_spec: Any = Spec
any_restart: Any = Restart


class Find(Message, frozen=True):
    reply: Reply[int]
    key: str
    since: int = 0


async def later(*_: object) -> Any:
    """Do nothing, asynchronously."""


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: any_spec(Silent()), r"not an object of Silent: give the class, Spec\(Silent\)"),
        (lambda: any_spec(later), "must not be `async def`; await in `signal`"),
        (lambda: any_spec(Do, supervise=Restart()), r"supervise must be a function .* give lambda error: Restart\(limit=3"),
        (lambda: any_spec(Do, supervise=Stop), r"supervise must be a function .* give lambda error: Stop\(\)"),
        (lambda: any_spec(Do, supervise=later), "supervise must be a function .* give a `def`, as it must decide at once"),
        (lambda: any_spec(Do, supervise="restart"), r"is 'restart'; give lambda error: Restart\(\)"),
        (lambda: any_spec(Do, mailbox=10), r"mailbox must be a Mailbox\(capacity=...\), is 10"),
        (lambda: any_spec(Do, stop_within=timedelta(1)), "stop_within must be a number of seconds, is datetime"),
        (lambda: Mailbox(urgent=[Find]), r"urgent must be a tuple of classes, is \[<class"),  # type: ignore[arg-type]
        (lambda: any_spec(Do, stop_within=True), "stop_within must be a number of seconds, is True"),
        (lambda: any_restart(limit="3"), "limit must be a number, is '3'"),
        (lambda: any_restart(limit=True), "limit must be a number, is True"),
        (lambda: any_restart(within=None), "within must be a number, is None"),
        (lambda: any_restart(backoff=(0.1, "10")), r"backoff\[1\] must be a number, is '10'"),
        (lambda: any_restart(backoff=(0.1,)), r"backoff must be \(first, longest\) seconds, is \(0.1,\)"),
        (lambda: Mailbox(capacity=nan), "capacity must be an int, is nan"),  # type: ignore[arg-type]
        (lambda: Mailbox(stash="9"), "stash must be an int, is '9'"),  # type: ignore[arg-type]
        (lambda: Mailbox(batch=True), "batch must be an int, is True"),
        (lambda: any_restart(backoff=0.1), r"backoff must be \(first, longest\) seconds, is 0.1"),
    ],
)
def test_a_setting_of_the_wrong_type_is_an_error_where_it_is_written(make: Callable[[], Any], error: str) -> None:
    """Not a surprise when an actor starts or fails, and the text says what to write."""
    with pytest.raises(TypeError, match=error):
        make()


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (Silent, r"spawn of /test/a takes a Spec, not a class; give Spec\(Silent\)"),
        (lambda: Silent(), r"takes a Spec, not a function; give Spec\(function\)"),
        (Silent(), r"takes a Spec, not Silent; give Spec\(A\) of an Actor class A"),
    ],
)
async def test_spawn_without_a_spec_says_so(actor_kit: TestKit, spec: Any, error: str) -> None:
    """Nothing of the actor is left, and its name is free."""
    with pytest.raises(TypeError, match=error):
        await actor_kit.spawn(spec, "a")
    await do(actor_kit, "a")


async def test_a_name_that_is_no_string_is_refused(actor_kit: TestKit) -> None:
    """It is refused as an empty one is, for actors and systems."""
    number: Any = 5
    with pytest.raises(ValueError, match="must be a non-empty string without '/', is 5"):
        await actor_kit.spawn(Spec(Do), number)
    with pytest.raises(ValueError, match="must be a non-empty string without '/', is 5"):
        System(number)


async def test_a_factory_that_returns_no_actor_fails_the_start(actor_kit: TestKit) -> None:
    """The cause names the actor and the object."""
    make: Any = lambda: "actor"  # noqa: E731 - of any type
    with pytest.raises(Exception, match="/test/a failed to start") as caught:
        await actor_kit.spawn(Spec(make), "a")
    assert str(caught.value.__cause__) == "the factory of /test/a returned 'actor'; it must return a new Actor"


async def test_ctx_in_the_constructor_is_explained(actor_kit: TestKit) -> None:
    """The error has a note, as the attribute comes later."""

    class Early(Actor[Any]):
        def __init__(self) -> None:
            self.ctx.stop()

    with pytest.raises(Exception, match="/test/a failed to start") as caught:
        await actor_kit.spawn(Spec(Early), "a")
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__.__notes__ == ["ctx is available from Started on, not yet in __init__"]


async def test_another_attribute_that_a_constructor_lacks_is_not_explained(actor_kit: TestKit) -> None:
    """The note would be about something else."""

    class Wrong(Actor[Any]):
        def __init__(self) -> None:
            self.count += 1  # type: ignore[attr-defined]

    with pytest.raises(Exception, match="/test/a failed to start") as caught:
        await actor_kit.spawn(Spec(Wrong), "a")
    assert isinstance(caught.value.__cause__, AttributeError)
    assert not hasattr(caught.value.__cause__, "__notes__")


@pytest.mark.parametrize("urgent", [(), (Keep,)])
async def test_a_value_returned_by_receive_is_named_as_the_mistake(actor_kit: TestKit, urgent: tuple[type[Any], ...]) -> None:
    """The error says how to answer, in both lanes; the value itself may be secret and is not shown."""

    class Returns(Actor[Any]):
        def receive(self, message: Any, /) -> Any:
            return "hunter2" if isinstance(message, Keep) else later()

    failures: list[Failed] = []
    actor_kit.subscribe(Failed, failures.append)
    ref = await actor_kit.spawn(Spec(Returns, supervise=lambda _: Resume(), mailbox=Mailbox(urgent=urgent)), "a")
    ref.tell("fine")
    with pytest.raises(TypeError, match=r"receive of /test/a returned a value \(str\), .* answer an ask by message.reply.tell") as caught:
        await ref.ask(Keep)
    assert "hunter2" not in str(caught.value)
    assert [type(failure.error) for failure in failures] == [TypeError]


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_signal_that_returns_neither_handled_nor_none_fails(actor_kit: TestKit, *, asynchronous: bool) -> None:
    """True is no HANDLED, and would otherwise let another's failure through."""

    class Returns(Silent):
        def signal(self, signal: Any, /) -> Any:
            if not isinstance(signal, Terminated):
                return None
            return self.slowly() if asynchronous else True

        async def slowly(self) -> bool:
            return True

    other, _ = await do(actor_kit, "other")
    ref = await actor_kit.spawn(Spec(Returns), "a")
    ref.tell(lambda me: me.ctx.watch(other))
    await actor_kit.quiesce()
    await actor_kit.stop(other)
    cause = (await actor_kit.probe(object).terminated(ref)).cause
    assert str(cause) == "signal of /test/a returned True for Terminated; it must return HANDLED or None"


async def test_an_ask_whose_request_cannot_be_made_names_its_class_and_fields(actor_kit: TestKit) -> None:
    """Whether an object is given in place of the class, or the wrong arguments."""
    ref: Any
    ref, _ = await do(actor_kit)
    with pytest.raises(TypeError, match=r"takes the class of the request, not an object of Find\(reply, key, since\); write ask\(Find, key, since\)"):
        ref.ask(Find(None, "hunter2"))  # type: ignore[arg-type]
    for arguments in ((), ("a", 1, 2)):
        with pytest.raises(TypeError, match=r"could not make a request: .*; Find takes \(reply, key, since\), of which ask itself adds the first"):
            ref.ask(Find, *arguments)
    with pytest.raises(TypeError, match="not an object of str"):
        ref.ask("find")
    assert ref._inbox.asks in (None, {})


async def test_an_error_within_the_function_of_a_request_is_its_own(actor_kit: TestKit) -> None:
    """Only a call that did not come about is explained."""
    ref, _ = await do(actor_kit)

    def request(reply: Reply[int]) -> Any:
        raise TypeError(f"own of {reply!r}")

    with pytest.raises(TypeError, match=r"^own of <Reply"):
        ref.ask(request)


async def test_a_class_sent_in_place_of_a_message_is_dropped_like_any_other(actor_kit: TestKit) -> None:
    """An actor that fails at it ends as at any message; its system goes on."""
    ref, _ = await do(actor_kit, supervise=lambda _: Resume())
    ref.tell(Find)  # it is callable, so `Do` calls it: the reply is the actor, and the key is missing
    ref.tell("after")
    await actor_kit.quiesce()
    await actor_kit.stop(ref)
    ref.tell(Find)
    assert [each.message for each in actor_kit.undelivered] == [Find]
    assert actor_kit.failures == []


async def test_reply_fail_with_no_exception_fails_the_ask_with_an_error(actor_kit: TestKit) -> None:
    """The asker learns who did so."""
    ref, _ = await do(actor_kit)

    def request(reply: Reply[Any]) -> Any:
        any_reply: Any = reply
        return lambda _: any_reply.fail("text")

    with pytest.raises(TypeError, match="/test/a failed this ask with an object of str, which is no exception"):
        await ref.ask(request)


async def test_objects_that_are_no_refs_are_refused_by_name(actor_kit: TestKit) -> None:
    """A coroutine of a spawn that was not awaited has a hint of its own."""
    ref, _ = await do(actor_kit, supervise=lambda _: Resume())

    def give_itself(me: Do, use: str) -> Any:
        return getattr(me.ctx, use)(me)

    for use in ("watch", "unwatch", "stop", "kill"):
        with pytest.raises(TypeError, match="expected a Ref, but got an object of Do; give what spawn returned"):
            await ref.ask(Call, partial(give_itself, use=use))
    spawn: Any = actor_kit.spawn(Spec(Do), "b")
    with pytest.raises(TypeError, match="expected a Ref, but got a coroutine; await spawn"):
        await actor_kit.stop(spawn)
    spawn.close()


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (lambda ctx: ctx.blocking(later), "ctx.blocking of /test/a takes a function that is not async"),
        (lambda ctx: ctx.blocking(5), "ctx.blocking of /test/a .* but got 5"),
        (lambda ctx: ctx.pipe(later, str, str), "ctx.pipe of /test/a takes an awaitable, but got <function later"),
        (lambda ctx: ctx.pipe(asyncio.sleep(0), str, None), "ctx.pipe of /test/a takes two functions"),
        (lambda ctx: ctx.timers.once("k", timedelta(1), "x"), "delay of timer 'k' must be a number of seconds, is datetime"),
        (lambda ctx: ctx.self_ref.ask(Keep).within("1"), "the time for an answer must be a number of seconds, is '1'"),
    ],
)
@pytest.mark.filterwarnings("ignore:coroutine 'sleep' was never awaited")
async def test_a_wrong_argument_of_a_call_is_an_error_at_the_call(actor_kit: TestKit, use: Callable[[Any], Any], error: str) -> None:
    """It comes from the actor's own line, with the actor's path."""
    ref, _ = await do(actor_kit, supervise=lambda _: Resume())
    with pytest.raises(TypeError, match=error):
        await ref.ask(Call, lambda me: use(me.ctx))


def test_a_subscription_needs_a_function_that_is_not_async() -> None:
    """An async one would never run."""
    system = System("s")
    for handler in (later, None):
        with pytest.raises(TypeError, match="subscribe of system 's' takes a type of events and a function"):
            system.subscribe(Failed, handler)  # type: ignore[arg-type]


def test_run_needs_an_async_function() -> None:
    """A plain function has run by then, and its result cannot be awaited."""
    plain: Any = lambda _: 1  # noqa: E731 - of any type
    with pytest.raises(TypeError, match=r"run takes an async function of the kit, but .* returned 1"):
        run(plain)


async def test_run_within_a_loop_says_what_to_use_instead() -> None:
    """It makes a loop of its own."""
    with pytest.raises(RuntimeError, match=r"use `async with TestKit\(\)` or the fixture"):
        run(later)


async def test_a_factory_that_returns_an_actor_in_use_is_refused(actor_kit: TestKit) -> None:
    """Two actors would share one context, and a restart would keep the broken state."""
    one: Actor[Any] = Silent()
    ref = await actor_kit.spawn(Spec(lambda: one, supervise=lambda _: Restart(backoff=(0, 0))), "one")
    with pytest.raises(StartFailed) as caught:
        await actor_kit.spawn(Spec(lambda: one), "two")
    assert "which is or was in use as /test/one; it must return a new Actor each time" in str(caught.value.__cause__)
    ref.tell(lambda _: 1 / 0)
    await actor_kit.quiesce()
    (failure,) = actor_kit.failures
    assert isinstance(failure, ActorFailed)
    assert "in use as /test/one" in str(failure.exceptions[0])
    actor_kit.failures.clear()


@pytest.mark.parametrize("setting", [{"within": nan}, {"jitter": nan}, {"backoff": (0.1, nan)}, {"backoff": (nan, 1)}])
def test_a_restart_refuses_what_is_no_number(setting: dict[str, Any]) -> None:
    """A window of NaN would make the budget unlimited."""
    with pytest.raises(ValueError, match="within must be positive"):
        any_restart(**setting)
