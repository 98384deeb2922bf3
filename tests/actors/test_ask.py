"""Questions, answers, and all the ways in which there is none."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from actors import Actor, ActorStopped, AskTimeout, Mailbox, NoReply, Ref, Reply, Restart, Resume, SelfDeadlock, Spec
from actors.loop._deadlines import Deadlines
from actors.messages._ask import PendingAsk
from actors.testing import TestKit
from tests.actors.helpers import Boom, Call, Do, Keep, boom, do

pytestmark = pytest.mark.actors(runs=5)


class Clerk(Actor[Any]):
    """Keep replies, and answer when told a value."""

    def __init__(self) -> None:
        self.kept: list[Reply[Any]] = []

    def receive(self, message: Any, /) -> None:
        if isinstance(message, Keep):
            self.kept.append(message.reply)
        elif isinstance(message, Exception):
            self.kept.pop().fail(message)
        elif message == "forget":
            self.kept.clear()
        else:
            self.kept.pop().tell(message)


async def test_an_ask_returns_the_answer(actor_kit: TestKit) -> None:
    """The reply is the request's first field, the rest are its arguments."""
    ref, _ = await do(actor_kit)
    assert await ref.ask(Call, lambda me: me.ctx.path) == "/test/a"


async def test_a_request_is_sent_when_asked_not_when_awaited(actor_kit: TestKit) -> None:
    """Several asks may be under way at once, and a later tell stays later."""
    ref, log = await do(actor_kit)
    first = ref.ask(Call, lambda me: me.log.append("asked"))
    ref.tell("told")
    second = ref.ask(Call, lambda me: len(me.log))
    assert await second == 2
    assert await first is None
    assert log == ["asked", "told"]


async def test_a_reply_may_be_kept_and_given_later(actor_kit: TestKit) -> None:
    """Deferring needs no magic."""
    clerk = await actor_kit.spawn(Spec(Clerk), "clerk")
    ask = clerk.ask(Keep)
    clerk.tell("answer")
    assert await ask == "answer"


async def test_a_reply_knows_whether_its_asker_still_waits(actor_kit: TestKit) -> None:
    """It is wanted until it is answered, or its asker is cancelled."""
    ref, log = await do(actor_kit)
    answered, cancelled = (asyncio.ensure_future(_await(ref.ask(Keep))) for _ in range(2))
    await actor_kit.quiesce()
    kept: list[Reply[Any]] = [message.reply for message in log]
    assert [reply.wanted() for reply in kept] == [True, True]
    kept[0].tell(None)
    cancelled.cancel()
    await asyncio.wait([answered, cancelled])
    assert [reply.wanted() for reply in kept] == [False, False]


async def test_reply_fail_raises_at_the_asker(actor_kit: TestKit) -> None:
    """The callee chooses the error, and lives on."""
    clerk = await actor_kit.spawn(Spec(Clerk), "clerk")
    ask = clerk.ask(Keep)
    clerk.tell(Boom("no"))
    with pytest.raises(Boom, match="no"):
        await ask
    assert not actor_kit.failures


async def test_only_the_first_answer_counts(actor_kit: TestKit) -> None:
    """A reply is settled at most once."""

    names: list[str] = []

    class Twice(Actor[Keep]):
        def receive(self, message: Keep, /) -> None:
            names.append(repr(message.reply))
            message.reply.tell(1)
            message.reply.tell(2)
            message.reply.fail(Boom())
            names.append(repr(message.reply))

    ref = await actor_kit.spawn(Spec(Twice), "twice")
    assert await ref.ask(Keep) == 1
    await actor_kit.quiesce()
    assert names == ["<Reply of /test/twice>", "<Reply, given>"]


async def test_an_ask_times_out_without_waiting_for_the_callee(actor_kit: TestKit) -> None:
    """A callee that never answers costs the timeout, no more; the error names the message that the callee is handling."""
    never = asyncio.get_running_loop().create_future()

    async def hang(_: Do) -> None:
        await never

    ref, _ = await do(actor_kit)
    ref.tell(hang)
    await actor_kit.quiesce()
    ref.tell("behind")
    ask = asyncio.create_task(_await(ref.ask(Keep).within(2)))
    await actor_kit.clock.advance(1.9)
    assert not ask.done()
    await actor_kit.clock.advance(0.1)
    with pytest.raises(TimeoutError, match=r"no answer from /test/a within 2 s; the actor has been handling function for .* s, 2 messages queued"):
        await ask
    never.set_result(None)


async def test_an_idle_callee_that_owes_an_answer_is_named_so(actor_kit: TestKit) -> None:
    """The default timeout is the system's, 5 s; a late answer is dropped."""
    clerk = await actor_kit.spawn(Spec(Clerk), "clerk")
    ask = asyncio.create_task(_await(clerk.ask(Keep)))
    await actor_kit.clock.advance(5)
    with pytest.raises(AskTimeout, match="the actor is running and idle, 0 messages queued"):
        await ask
    clerk.tell("late")
    await actor_kit.quiesce()
    assert not actor_kit.failures


async def test_many_asks_share_one_timer_and_each_keeps_its_deadline(actor_kit: TestKit) -> None:
    """Deadlines of one timeout expire one after the other, the answered ones not at all."""
    clerk = await actor_kit.spawn(Spec(Clerk), "clerk")
    asks = []
    for _ in range(3):
        asks.append(asyncio.create_task(_await(clerk.ask(Keep).within(3))))
        await actor_kit.clock.advance(1)
    clerk.tell("the last one")
    await actor_kit.quiesce()
    assert [ask.done() for ask in asks] == [True, False, True]
    assert isinstance(asks[0].exception(), AskTimeout)
    assert asks[2].result() == "the last one"
    await actor_kit.clock.advance(1)
    assert isinstance(asks[1].exception(), AskTimeout)


async def test_an_answer_in_time_leaves_no_deadline(actor_kit: TestKit) -> None:
    """After many answered asks one timer stands at most, and it expires nothing."""
    ref, _ = await do(actor_kit)
    for n in range(20):
        assert await ref.ask(Call, partial(_same, n)) == n
    core: Any = actor_kit._core
    (queue,) = core.deadlines._queues.values()
    assert queue.waiting == {}
    await actor_kit.clock.advance(10)
    assert core.deadlines._queues == {}


async def test_a_dropped_reply_fails_the_ask_at_once(actor_kit: TestKit) -> None:
    """Nobody waits for the timeout when nobody can answer any more."""
    ref, _ = await do(actor_kit, on={})
    forgetful: Any = ref.narrow(lambda keep: lambda me: me.log.append(type(keep)))
    with pytest.raises(NoReply, match="/test/a dropped the reply of this ask unanswered"):
        await forgetful.ask(Keep)
    clerk = await actor_kit.spawn(Spec(Clerk), "clerk")
    ask = clerk.ask(Keep)
    clerk.tell("forget")
    with pytest.raises(NoReply):
        await ask
    assert actor_kit.clock.time() == 0


async def test_an_ask_to_a_stopped_actor_fails_at_once(actor_kit: TestKit) -> None:
    """The answer to asking the dead is ActorStopped."""
    ref, _ = await do(actor_kit)
    await actor_kit.stop(ref)
    with pytest.raises(ActorStopped, match="actor /test/a has stopped"):
        await ref.ask(Keep)


async def test_a_stop_fails_asks_that_are_queued_kept_or_stashed(actor_kit: TestKit) -> None:
    """A stop with queued messages ends, and leaves no ask to its timeout."""
    keepers: list[Any] = []

    class Mixed(Actor[Any]):
        def receive(self, message: Any, /) -> Any:
            if isinstance(message, Keep) and not keepers:
                keepers.append(message.reply)
            elif isinstance(message, Keep):
                self.ctx.stash(message)
            else:
                self.ctx.stop()

    ref = await actor_kit.spawn(Spec(Mixed), "mixed")
    asks = [asyncio.create_task(_await(ref.ask(Keep))) for _ in range(2)]
    await actor_kit.quiesce()

    def stop_then_ask() -> None:
        ref.tell("stop")
        asks.append(asyncio.create_task(_await(ref.ask(Keep))))

    stop_then_ask()
    outcomes = await asyncio.gather(*asks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ActorStopped] * 3
    assert actor_kit.clock.time() == 0


async def test_a_failure_fails_the_ask_of_its_message_only(actor_kit: TestKit) -> None:
    """The asker hears the very error that broke the actor."""
    ref, _ = await do(actor_kit, supervise=lambda _: Resume())
    broken, fine = ref.ask(Call, boom), ref.ask(Call, lambda me: "fine")
    with pytest.raises(Boom):
        await broken
    assert await fine == "fine"


async def test_asking_oneself_raises_instead_of_deadlocking(actor_kit: TestKit) -> None:
    """An actor cannot wait for an answer that only itself could give; it may pipe it."""
    caught: list[Exception] = []

    async def ask_itself(me: Do) -> None:
        try:
            await me.ctx.self_ref.ask(Call, lambda _: None)
        except SelfDeadlock as error:
            caught.append(error)
        me.ctx.pipe(_await(me.ctx.self_ref.ask(Call, lambda _: "answer")), lambda answer: answer, lambda error: error)

    ref, log = await do(actor_kit)
    ref.tell(ask_itself)
    await actor_kit.quiesce()
    assert "would wait for itself in ask" in str(caught[0])
    assert log == ["answer"]


async def test_a_cancelled_ask_is_forgotten(actor_kit: TestKit) -> None:
    """Cancelling neither waits for the callee nor leaves anything with it."""
    clerk = await actor_kit.spawn(Spec(Clerk), "clerk")
    ask = asyncio.create_task(_await(clerk.ask(Keep)))
    await actor_kit.quiesce()
    ask.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ask
    assert clerk._inbox.asks == {}
    clerk.tell("late")
    await actor_kit.quiesce()


async def test_an_ask_is_awaited_by_one(actor_kit: TestKit) -> None:
    """A second await of an open ask is an error; of an answered one it gives the answer again."""
    clerk = await actor_kit.spawn(Spec(Clerk), "clerk")
    ask = clerk.ask(Keep)
    first = asyncio.create_task(_await(ask))
    await actor_kit.quiesce()
    with pytest.raises(RuntimeError, match="already awaited"):
        await ask
    clerk.tell("answer")
    assert await first == "answer"
    assert await ask == "answer"


async def test_a_request_may_be_passed_on(actor_kit: TestKit) -> None:
    """Any holder of the reply may answer."""
    clerk = await actor_kit.spawn(Spec(Clerk), "clerk")

    class Front(Actor[Keep]):
        def receive(self, message: Keep, /) -> None:
            clerk.tell(message)

    front = await actor_kit.spawn(Spec(Front), "front")
    ask = front.ask(Keep)
    await actor_kit.quiesce()
    clerk.tell("from the back")
    assert await ask == "from the back"


async def test_a_request_passed_on_fails_with_its_last_holder(actor_kit: TestKit) -> None:
    """A passed-on request that breaks its second actor, or reaches a dead one, does not wait for the timeout."""
    back, _ = await do(actor_kit, "back", supervise=lambda _: Resume())
    dead, _ = await do(actor_kit, "dead")
    await actor_kit.stop(dead)
    front, _ = await do(actor_kit, "front")
    passed: Ref[Any] = front.narrow(lambda call: lambda _: back.tell(call))
    with pytest.raises(Boom):
        await passed.ask(Call, boom)
    with pytest.raises(ActorStopped, match="/test/dead"):
        passed = front.narrow(lambda call: lambda _: dead.tell(call))
        await passed.ask(Keep)


@dataclass(frozen=True)
class Plain:
    reply: Any


@dataclass(frozen=True, slots=True)
class Slotted:
    reply: Any


@pytest.mark.parametrize("make", [Keep, Plain, Slotted, lambda reply: ("get", reply)], ids=["struct", "dataclass", "slots", "tuple"])
async def test_requests_of_any_kind_fail_with_their_actor(actor_kit: TestKit, make: Any) -> None:
    """The reply is found in a Struct, in a dataclass with or without slots, and in a tuple."""

    class Fragile(Actor[Any]):
        def receive(self, message: Any, /) -> None:
            held.append(message)
            raise Boom("boom")

    held: list[Any] = []
    ref = await actor_kit.spawn(Spec(Fragile, supervise=lambda _: Resume()), "fragile")
    with pytest.raises(Boom):
        await ref.ask(make)


async def test_a_reply_may_come_from_another_thread(actor_kit: TestKit) -> None:
    """Settling from a foreign thread is carried to the loop's."""
    keeper = Clerk()
    clerk = await actor_kit.spawn(Spec(lambda: keeper), "clerk")
    ask = clerk.ask(Keep)
    await actor_kit.quiesce()
    thread = threading.Thread(target=keeper.kept.pop().tell, args=("from a thread",))
    thread.start()
    thread.join()
    assert await ask == "from a thread"


async def test_a_failed_ask_leaves_no_garbage_behind(actor_kit: TestKit) -> None:
    """An ask and its error are no cycle through the error's traceback: without the collector they are gone as well."""
    ref, _ = await do(actor_kit, supervise=lambda _: Resume())
    await actor_kit.quiesce()

    def asks() -> set[int]:
        return {id(it) for it in gc.get_objects() if isinstance(it, PendingAsk)}

    gc.collect()
    before = asks()
    gc.disable()
    try:
        with contextlib.suppress(Boom):
            await ref.ask(Call, boom)
        assert asks() <= before
    finally:
        gc.enable()


async def _await(ask: Any) -> Any:
    return await ask


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
async def test_an_impossible_time_to_answer_is_refused(actor_kit: TestKit, seconds: float) -> None:
    """A time that cannot be waited for is a ValueError."""
    ref, _ = await do(actor_kit)
    ask = ref.ask(Call, lambda _: 1)
    with pytest.raises(ValueError, match="the time must be positive"):
        ask.within(seconds)
    assert await ask.within(float("inf")) == 1


async def test_an_ask_that_was_cancelled_says_so_when_awaited_again(actor_kit: TestKit) -> None:
    """It has no answer and will get none."""
    clerk = await actor_kit.spawn(Spec(Clerk), "clerk")
    ask = clerk.ask(Keep)
    task = asyncio.create_task(_await(ask))
    await actor_kit.quiesce()
    task.cancel()
    await asyncio.wait([task])
    with pytest.raises(RuntimeError, match="was cancelled while it was awaited; ask again"):
        await ask


class Base:
    __slots__ = ("reply",)

    def __init__(self, reply: Any) -> None:
        self.reply = reply


class Derived(Base):
    __slots__ = ()


class OneSlot:
    __slots__ = "reply"  # noqa: PLC0205 - a string is legal, too

    def __init__(self, reply: Any) -> None:
        self.reply = reply


@pytest.mark.parametrize("kind", [Derived, OneSlot])
async def test_replies_in_slots_are_found_wherever_they_are_declared(actor_kit: TestKit, kind: Any) -> None:
    """In a base class, or as a single string."""
    held: list[Any] = []

    class Fragile(Actor[Any]):
        def receive(self, message: Any, /) -> None:
            held.append(message)
            raise Boom("boom")

    ref = await actor_kit.spawn(Spec(Fragile, supervise=lambda _: Resume()), "fragile")
    with pytest.raises(Boom):
        await ref.ask(kind)


async def test_a_reply_that_an_old_incarnation_kept_fails_at_its_restart(actor_kit: TestKit) -> None:
    """The old object is let go of at once, not when the garbage collector comes by."""
    gc.collect()
    gc.disable()
    try:

        class Forgetful(Clerk):
            def receive(self, message: Any, /) -> None:
                if message == "fail":
                    raise Boom("boom")
                super().receive(message)

        ref = await actor_kit.spawn(Spec(Forgetful, supervise=lambda _: Restart(backoff=(1.0, 1.0))), "clerk")
        with caught_log_records_dropped():
            ask = asyncio.create_task(_await(ref.ask(Keep)))
            await actor_kit.quiesce()
            ref.tell("fail")
            await actor_kit.quiesce()
        assert isinstance(ask.exception(), NoReply)
        assert actor_kit.clock.time() == 0
    finally:
        gc.enable()


@contextlib.contextmanager
def caught_log_records_dropped() -> Iterator[None]:
    """Keep pytest from keeping the tracebacks of log records, and with them the actor."""
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


async def test_every_asker_gets_an_error_of_its_own(actor_kit: TestKit) -> None:
    """Tracebacks of several tasks are not mixed up in one shared object."""
    clerk = await actor_kit.spawn(Spec(Clerk), "clerk")
    asks = [asyncio.create_task(_await(clerk.ask(Keep))) for _ in range(3)]
    await actor_kit.quiesce()
    await actor_kit.stop(clerk)
    await actor_kit.quiesce()
    errors = [ask.exception() for ask in asks]
    assert len({id(error) for error in errors}) == 3
    assert {type(error) for error in errors} == {ActorStopped}


async def test_many_asks_may_expire_in_one_moment(actor_kit: TestKit) -> None:
    """All of them, and nothing else."""
    clerk = await actor_kit.spawn(Spec(Clerk, mailbox=Mailbox(capacity=3000)), "clerk")
    asks = [asyncio.create_task(_await(clerk.ask(Keep).within(1))) for _ in range(3000)]
    await actor_kit.clock.advance(1)
    assert all(isinstance(ask.exception(), AskTimeout) for ask in asks)


async def test_an_ask_answered_in_the_moment_it_expires_does_not_expire(actor_kit: TestKit) -> None:
    """Of two deadlines in one moment, the first may call off the second."""
    expired: list[str] = []

    class First:
        def expire(self) -> None:
            expired.append("first")
            waiting.pop(second)

    class Second:
        def expire(self) -> None:
            expired.append("second")

    second = Second()
    deadlines = Deadlines(actor_kit.clock)
    deadlines.add(First(), 1)
    waiting = deadlines.add(second, 1)
    await actor_kit.clock.advance(2)
    assert expired == ["first"]


def _same(value: Any, _: Do) -> Any:
    return value


async def test_asks_until_a_fixed_time_leave_no_timers(actor_kit: TestKit) -> None:
    """Each has a timeout of its own; what is answered is dropped, and what waits keeps its deadline."""
    ref, _ = await do(actor_kit)
    waiting = [asyncio.ensure_future(ref.ask(Keep).within(100 + n / 7)) for n in range(3)]
    for n in range(500):
        assert await ref.ask(Call, partial(_same, n)).within(3600 - n / 7) == n
    core: Any = actor_kit._core
    assert len(core.deadlines._queues) <= 70
    await actor_kit.clock.advance(101)
    assert [type(ask.exception()) for ask in waiting] == [AskTimeout] * 3
