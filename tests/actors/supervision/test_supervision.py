"""The consequences of a failure."""

from __future__ import annotations

import asyncio
from math import inf, nan
from typing import Any

import pytest

from actors import (
    ActorFailed,
    ActorStopped,
    Decision,
    Failed,
    Mailbox,
    Restart,
    Restarted,
    Resume,
    Spec,
    Started,
    Stop,
    Stopping,
    StrayCancellation,
    Terminated,
    Undelivered,
)
from actors.testing import TestKit
from tests.actors.helpers import Boom, Call, Do, Silent, boom, do, ends, note, restart_at_once, started

pytestmark = pytest.mark.actors(runs=5)


@pytest.mark.parametrize(
    "options",
    [
        {"limit": -1},
        {"within": 0},
        {"jitter": -0.1},
        {"backoff": (2.0, 1.0)},
        {"backoff": (-1.0, 1.0)},
        {"limit": nan},
        {"within": nan},
        {"jitter": nan},
        {"jitter": inf},
        {"backoff": (nan, 1.0)},
        {"backoff": (0.1, nan)},
    ],
)
def test_an_impossible_restart_is_refused(options: dict[str, Any]) -> None:
    """Settings that make no sense are a ValueError when they are written, not when an actor fails."""
    with pytest.raises(ValueError, match="limit and jitter must not be negative"):
        Restart(**options)
    with pytest.raises(ValueError, match="the first wait of backoff must be finite"):
        Restart(backoff=(inf, inf))


async def test_by_default_a_failure_stops_the_actor_with_its_reason(actor_kit: TestKit) -> None:
    """Fail loud: the watcher gets the error, the rest of the queue is undelivered."""
    ref, _ = await do(actor_kit)
    probe = actor_kit.probe(object)
    ref.tell(boom)
    ref.tell("behind")
    end = await probe.terminated(ref)
    assert isinstance(end.cause, Boom)
    assert actor_kit.undelivered == [Undelivered("/test/a", "behind", "stopped")]


async def test_resume_keeps_the_state_and_drops_the_message(actor_kit: TestKit) -> None:
    """The actor goes on as if the message had not been."""
    ref, log = await do(actor_kit, supervise=lambda _: Resume(), on=note(Started))
    for message in ("before", boom, "after"):
        ref.tell(message)
    await actor_kit.quiesce()
    assert log == [Started(0), "before", "after"]


async def test_a_restart_keeps_ref_and_mailbox_and_drops_the_failed_message(actor_kit: TestKit) -> None:
    """A new object takes over the queue; the old one hears Stopping, the new one its number."""
    instances: list[Do] = []
    log: list[Any] = []

    def make() -> Do:
        instances.append(Do(log, note(Started, Stopping)))
        return instances[-1]

    ref = await actor_kit.spawn(Spec(make, supervise=restart_at_once()), "a")
    for message in ("before", boom, "after"):
        ref.tell(message)
    await actor_kit.quiesce()
    assert log == [Started(0), "before", Stopping("restart"), Started(1), "after"]
    assert len(instances) == 2
    assert instances[0].ctx.self_ref == instances[1].ctx.self_ref == ref


async def test_a_restart_unstashes(actor_kit: TestKit) -> None:
    """Stashed messages survive the incarnation that stashed them."""
    ref, log = await do(actor_kit, supervise=restart_at_once())

    def stash_and_fail(me: Do) -> None:
        me.ctx.stash("stashed")
        boom()

    ref.tell(stash_and_fail)
    ref.tell("queued")
    await actor_kit.quiesce()
    assert log == ["stashed", "queued"]


async def test_a_restart_ends_timers_pipes_and_watches_of_the_old_incarnation(actor_kit: TestKit) -> None:
    """Nothing of the old incarnation reaches the new one, not even messages that were queued already."""
    other, _ = await do(actor_kit, "other")
    done = asyncio.get_running_loop().create_future()
    ref, log = await do(actor_kit, supervise=restart_at_once(), on=note(Terminated))

    async def result() -> str:
        return "piped and ready"

    def prepare(me: Do) -> None:
        me.ctx.timers.once("later", 1, "timer")
        me.ctx.timers.once("now", 0, "timer and fired")
        me.ctx.pipe(done, lambda it: it, lambda error: error)
        me.ctx.pipe(result(), lambda it: it, lambda error: error)
        me.ctx.watch(other)

    async def wait_and_fail(_: Do) -> None:
        await other.ask(Call, lambda _: None)
        boom()

    ref.tell(prepare)
    ref.tell(wait_and_fail)
    await actor_kit.quiesce()
    await actor_kit.stop(other)
    if not done.done():
        done.set_result("piped")
    await actor_kit.clock.advance(5)
    assert [entry for entry in log if entry not in {"timer and fired", "piped and ready"}] == []


async def test_a_restart_stops_the_children_unless_told_to_keep_them(actor_kit: TestKit) -> None:
    """By default the new incarnation begins without children."""
    for keep in (False, True):
        log: list[Any] = []
        ref, _ = await do(actor_kit, f"keep-{keep}", supervise=restart_at_once(keep_children=keep))
        ref.tell(lambda me, log=log: me.ctx.spawn(Spec(lambda: Do(log, note(Started, Stopping))), "child"))
        ref.tell(boom)
        await actor_kit.quiesce()
        assert log == ([Started(0)] if keep else [Started(0), Stopping("shutdown")])
        paths = [info.path for info in actor_kit.tree()]
        assert (f"/test/keep-{keep}/child" in paths) is keep


async def test_backoff_doubles_up_to_its_limit_with_jitter_on_top(actor_kit: TestKit) -> None:
    """min(first * 2^n, longest), stretched by up to the jitter."""
    delays: list[float] = []
    actor_kit.subscribe(Restarted, lambda event: delays.append(event.delay))
    ref, _ = await do(actor_kit, supervise=lambda _: Restart(limit=5, within=1000, backoff=(1.0, 5.0), jitter=0.5))
    for _ in range(5):
        ref.tell(boom)
        await actor_kit.clock.advance(10)
    for delay, least in zip(delays, [1, 2, 4, 5, 5], strict=True):
        assert least <= delay <= least * 1.5
    assert len(set(delays)) == 5


async def test_messages_wait_during_backoff(actor_kit: TestKit) -> None:
    """A backing-off actor takes messages, and handles them when it runs again."""
    ref, log = await do(actor_kit, supervise=lambda _: Restart(backoff=(1.0, 1.0), jitter=0))
    ref.tell(boom)
    await actor_kit.quiesce()
    ref.tell("meanwhile")
    await actor_kit.clock.advance(0.9)
    assert log == []
    assert [info.state for info in actor_kit.tree()] == ["restarting"]
    await actor_kit.clock.advance(0.1)
    assert log == ["meanwhile"]


async def test_a_stop_during_backoff_is_heeded_at_once(actor_kit: TestKit) -> None:
    """Nobody waits for an actor to come back only to end it."""
    ref, _ = await do(actor_kit, supervise=lambda _: Restart(backoff=(1000.0, 1000.0)))
    ref.tell(boom)
    await actor_kit.quiesce()
    await actor_kit.stop(ref)
    assert actor_kit.clock.time() == 0


async def test_a_kill_during_backoff_is_heeded_at_once(actor_kit: TestKit) -> None:
    """The kill does not wait for the end of the backoff."""
    ref, _ = await do(actor_kit, supervise=lambda _: Restart(backoff=(1000.0, 1000.0)))
    ref.tell(boom)
    await actor_kit.quiesce()
    await actor_kit.kill(ref)
    assert actor_kit.clock.time() == 0


async def test_past_the_budget_the_actor_stops_with_the_last_error(actor_kit: TestKit) -> None:
    """limit restarts within the window, and no more."""
    ref, log = await do(actor_kit, supervise=restart_at_once(limit=2, within=10), on=note(Started))
    probe = actor_kit.probe(object)
    for n in range(3):
        ref.tell(lambda _, n=n: boom() if n < 2 else 1 / 0)
        await actor_kit.quiesce()
    assert isinstance((await probe.terminated(ref)).cause, ZeroDivisionError)
    assert started(log) == [0, 1, 2]


async def test_the_budget_slides(actor_kit: TestKit) -> None:
    """Restarts that are older than the window do not count."""
    ref, log = await do(actor_kit, supervise=restart_at_once(limit=2, within=10), on=note(Started))
    for _ in range(6):
        ref.tell(boom)
        await actor_kit.clock.advance(6)
    assert started(log) == [0, 1, 2, 3, 4, 5, 6]


async def test_each_child_has_a_budget_of_its_own(actor_kit: TestKit) -> None:
    """One child's failures cost its siblings nothing."""
    logs = {}
    for name in "ab":
        ref, logs[name] = await do(actor_kit, name, supervise=restart_at_once(limit=2), on=note(Started))
        for _ in range(2):
            ref.tell(boom)
    await actor_kit.quiesce()
    assert started(logs["a"]) == started(logs["b"]) == [0, 1, 2]


async def test_the_error_decides(actor_kit: TestKit) -> None:
    """Supervision is one function of the error."""

    def supervise(error: Exception) -> Decision:
        return Resume() if isinstance(error, Boom) else Stop()

    ref, log = await do(actor_kit, supervise=supervise)
    probe = actor_kit.probe(object)
    for message in (boom, "between", lambda _: 1 / 0, "after"):
        ref.tell(message)
    assert isinstance((await probe.terminated(ref)).cause, ZeroDivisionError)
    assert log == ["between"]


async def test_a_supervisor_that_raises_stops_the_actor_with_its_own_error(actor_kit: TestKit) -> None:
    """A decision that cannot be made is Stop; both errors are shown."""

    def supervise(error: Exception) -> Decision:
        raise KeyError(str(error))

    ref, _ = await do(actor_kit, supervise=supervise)
    probe = actor_kit.probe(object)
    ref.tell(boom)
    cause = (await probe.terminated(ref)).cause
    assert isinstance(cause, KeyError)
    assert isinstance(cause.__context__, Boom)
    assert "supervise of /test/a" in cause.__notes__[0]


async def test_failing_starts_at_a_restart_count_too(actor_kit: TestKit) -> None:
    """A factory or Started that raises uses up the budget; then the actor ends with that error."""
    made = 0
    log: list[Any] = []

    def make() -> Do:
        nonlocal made
        made += 1
        if made == 2:
            raise Boom("factory")
        return Do(log, {Started: lambda me, signal: log.append(signal) if signal.incarnation == 0 else 1 / 0, **note(Stopping)})

    ref = await actor_kit.spawn(Spec(make, supervise=restart_at_once(limit=3)), "a")
    probe = actor_kit.probe(object)
    ref.tell(boom)
    assert isinstance((await probe.terminated(ref)).cause, ZeroDivisionError)
    assert made == 4
    assert log == [Started(0), Stopping("restart")]


async def test_a_failing_start_is_decided_anew_and_cannot_be_resumed(actor_kit: TestKit) -> None:
    """Supervision sees the new error; Resume there means Stop, since nothing is there to go on with."""
    made = 0

    def make() -> Do:
        nonlocal made
        made += 1
        if made > 1:
            boom()
        return Do()

    for decision in (Resume(), Stop()):
        made = 0

        def supervise(error: Exception, decision: Decision = decision) -> Decision:
            return decision if made > 1 else Restart(backoff=(0.0, 0.0))  # noqa: B023 - as it is by then

        ref = await actor_kit.spawn(Spec(make, supervise=supervise), f"a-{type(decision).__name__}")
        probe = actor_kit.probe(object)
        ref.tell(boom)
        assert isinstance((await probe.terminated(ref)).cause, Boom)
        assert made == 2


async def test_a_stop_asked_for_while_it_restarts_ends_it_as_a_stop(actor_kit: TestKit) -> None:
    """A stop that is asked for during a restart without backoff takes effect."""
    ref, log = await do(actor_kit, supervise=restart_at_once(), on=note(Started, Stopping))

    def stop_and_fail(me: Do) -> None:
        me.ctx.stop()
        boom()

    ref.tell(stop_and_fail)
    await actor_kit.quiesce()
    assert log == [Started(0), Stopping("restart")]
    assert actor_kit.tree() == []
    assert actor_kit.failures == []


async def test_a_stray_cancellation_is_a_failure_not_an_end(actor_kit: TestKit) -> None:
    """A handler that awaits something cancelled has failed; its actor was not cancelled."""
    cancelled = asyncio.get_running_loop().create_future()
    cancelled.cancel()

    async def wait(_: Do) -> None:
        await cancelled

    failures: list[Failed] = []
    actor_kit.subscribe(Failed, failures.append)
    ref, log = await do(actor_kit, supervise=lambda _: Resume())
    ref.tell(wait)
    ref.tell("after")
    await actor_kit.quiesce()
    assert log == ["after"]
    assert isinstance(failures[0].error, StrayCancellation)
    assert isinstance(failures[0].error.__cause__, asyncio.CancelledError)


async def test_an_unhandled_failure_of_a_child_fails_the_parent(actor_kit: TestKit) -> None:
    """Failures bubble up, and the error at the top nests as the actors do."""
    log: list[Any] = []
    top, _ = await do(actor_kit, "top")
    top.tell(lambda me: me.ctx.spawn(Spec(lambda: Silent(log)), "middle"))
    middle = (await top.ask(Call, lambda me: me.ctx.children))[0]
    middle.tell(lambda me: me.ctx.spawn(Spec(lambda: Silent(log)), "bottom"))
    middle.tell(lambda me: me.ctx.children[0].tell(boom))
    probe = actor_kit.probe(object)
    cause = (await probe.terminated(top)).cause
    assert isinstance(cause, ActorFailed)
    assert cause.path == "/test/top/middle"
    inner = cause.exceptions[0]
    assert isinstance(inner, ActorFailed)
    assert inner.path == "/test/top/middle/bottom"
    assert isinstance(inner.exceptions[0], Boom)
    boomed, rest = cause.split(Boom)
    assert isinstance(boomed, ActorFailed)
    assert (boomed.path, rest) == (cause.path, None)


async def test_a_handled_failure_of_a_child_stays_below(actor_kit: TestKit) -> None:
    """HANDLED says that the parent has dealt with it."""
    top, log = await do(actor_kit, "top", on=note(Terminated))
    top.tell(lambda me: me.ctx.spawn(Spec(Silent), "child"))
    (child,) = await top.ask(Call, lambda me: me.ctx.children)
    child.tell(boom)
    await actor_kit.quiesce()
    assert [(end.ref, type(end.cause)) for end in ends(log)] == [(child, Boom)]
    assert await top.ask(Call, lambda me: me.ctx.children) == ()


async def test_a_parent_may_restart_because_of_a_child(actor_kit: TestKit) -> None:
    """The unhandled failure of a child goes to the parent's own supervision."""
    top, log = await do(actor_kit, "top", supervise=restart_at_once(), on=note(Started))
    top.tell(lambda me: me.ctx.spawn(Spec(Silent), "child"))
    (child,) = await top.ask(Call, lambda me: me.ctx.children)
    child.tell(boom)
    await actor_kit.quiesce()
    assert started(log) == [0, 1]


async def test_failures_of_children_that_a_restart_has_stopped_do_not_reach_the_next_incarnation(actor_kit: TestKit) -> None:
    """The new incarnation knows nothing of the old one's children."""
    top, log = await do(actor_kit, "top", supervise=restart_at_once(), on=note(Started), mailbox=Mailbox(capacity=100))

    async def spawn_broken_ones(me: Do) -> None:
        for n in range(3):
            (await me.ctx.spawn(Spec(Silent), f"child-{n}")).tell(boom)
        boom()

    top.tell(spawn_broken_ones)
    await actor_kit.quiesce()
    assert started(log) == [0, 1]


async def test_events_tell_of_failures_and_restarts(actor_kit: TestKit) -> None:
    """The failed actor, its message, the decision, and the new incarnation."""
    events: list[Any] = []
    actor_kit.subscribe(Failed, events.append)
    actor_kit.subscribe(Restarted, events.append)
    ref, _ = await do(actor_kit, supervise=restart_at_once(limit=1))
    probe = actor_kit.probe(object)
    ref.tell(boom)
    ref.tell(boom)
    end = await probe.terminated(ref)
    first, again, last = events
    assert (first.path, first.incarnation, first.message, first.decision) == ("/test/a", 0, boom, "restart")
    assert again == Restarted("/test/a", 1, 0.0)
    assert (last.incarnation, last.decision, last.error) == (1, "stop", end.cause)


async def test_a_stopping_that_hangs_does_not_keep_a_restart_from_happening(actor_kit: TestKit) -> None:
    """The last words of the old incarnation are cut off at stop_within, said once, and the failure is published."""
    failures: list[Failed] = []
    actor_kit.subscribe(Failed, failures.append)

    async def hang(me: Do, signal: Stopping) -> None:
        me.log.append(signal)
        if signal.reason == "restart":
            await asyncio.get_running_loop().create_future()

    ref, log = await do(actor_kit, supervise=restart_at_once(), stop_within=2, on={Stopping: hang, **note(Started)})
    ref.tell(boom)
    await actor_kit.clock.advance(2)
    assert log == [Started(0), Stopping("restart"), Started(1)]
    assert [type(event.error) for event in failures] == [Boom, TimeoutError]
    await actor_kit.stop(ref)
    assert log[-1] == Stopping("stop")
    assert actor_kit.failures == []


async def test_a_stopping_that_swallows_its_cancellation_is_cancelled_again(actor_kit: TestKit) -> None:
    """Until it gives in."""
    swallowed: list[int] = []

    async def stubborn(_: Do, signal: Stopping) -> None:
        for n in range(3):
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                swallowed.append(n)

    ref, _ = await do(actor_kit, stop_within=1, on={Stopping: stubborn})
    stop = asyncio.create_task(actor_kit.stop(ref))
    await actor_kit.clock.advance(4)
    await stop
    assert swallowed == [0, 1, 2]


async def test_a_kill_during_the_last_words_of_a_restart_ends_the_actor_without_more_words(actor_kit: TestKit) -> None:
    """Stopping is heard once per incarnation."""
    ref, log = await do(
        actor_kit,
        supervise=restart_at_once(),
        on={Stopping: lambda me, signal: me.log.append(signal) or asyncio.get_running_loop().create_future()},
    )
    ref.tell(boom)
    await actor_kit.quiesce()
    await actor_kit.kill(ref)
    assert log == [Stopping("restart")]


async def test_work_begun_in_stopping_ends_with_the_incarnation(actor_kit: TestKit) -> None:
    """Timers, pipes and watches of the last words come to nothing, and there are no late children."""
    refused: list[type[Exception]] = []
    never = asyncio.get_running_loop().create_future()
    other, _ = await do(actor_kit, "other")

    async def last_words(me: Do, _: Stopping) -> None:
        me.ctx.timers.once("k", 1, "timer")
        me.ctx.pipe(never, str, str)
        me.ctx.watch(other)
        try:
            await me.ctx.spawn(Spec(Silent), "child")
        except ActorStopped as error:
            refused.append(type(error))

    ref, log = await do(actor_kit, supervise=restart_at_once(), on={Stopping: last_words, **note(Terminated)})
    ref.tell(boom)
    await actor_kit.quiesce()
    await actor_kit.stop(other)
    await actor_kit.clock.advance(5)
    assert log == []
    assert never.cancelled()
    assert refused == [ActorStopped]


async def test_a_watched_childs_failure_reaches_the_parents_next_incarnation(actor_kit: TestKit) -> None:
    """With keep_children the new incarnation is the parent, and hears of failures as parents do."""
    top, log = await do(actor_kit, "top", supervise=restart_at_once(keep_children=True), on=note(Terminated))

    async def spawn_watch_and_fail(me: Do) -> None:
        child = await me.ctx.spawn(Spec(Silent), "child")
        me.ctx.watch(child)
        child.tell(boom)
        await other.ask(Call, lambda _: None)
        boom()

    other, _ = await do(actor_kit, "other")
    top.tell(spawn_watch_and_fail)
    await actor_kit.quiesce()
    assert [type(end.cause) for end in ends(log)] == [Boom]


async def test_failures_of_children_while_their_parent_stops_are_not_lost(actor_kit: TestKit) -> None:
    """The parent hears of them before its last words; unhandled they are its cause of death."""
    for handle in (True, False):
        top, log = await do(actor_kit, f"top-{handle}", on=note(Terminated, Stopping) if handle else note(Stopping))
        top.tell(lambda me: me.ctx.spawn(Spec(lambda: Do(on={Stopping: boom})), "child"))
        await actor_kit.quiesce()
        await actor_kit.stop(top)
        end = await actor_kit.probe(object).terminated(top)
        if handle:
            assert [type(entry) for entry in log] == [Terminated, Stopping]
            assert end.cause is None
        else:
            assert isinstance(end.cause, ActorFailed)
            assert isinstance(end.cause.exceptions[0], Boom)


async def test_a_failure_in_the_queue_of_a_stopping_parent_is_heard(actor_kit: TestKit) -> None:
    """A child that failed just before its parent's stop is not forgotten; watched strangers are."""
    top, log = await do(actor_kit, "top", on=note(Terminated))
    stranger, _ = await do(actor_kit, "stranger")

    async def spawn_break_and_stop(me: Do) -> None:
        child = await me.ctx.spawn(Spec(Silent), "child")
        child.tell(boom)
        me.ctx.watch(stranger)
        me.ctx.stop()
        stranger.tell(lambda me: me.ctx.stop())
        await other.ask(Call, lambda _: None)

    other, _ = await do(actor_kit, "other")
    top.tell(spawn_break_and_stop)
    await actor_kit.terminated(top)
    assert [end.ref.path for end in ends(log)] in ([], ["/test/top/child"])
    assert actor_kit.failures == []


async def test_the_budget_counts_all_restarts_in_the_window_of_each_decision(actor_kit: TestKit) -> None:
    """A supervisor that answers errors with different windows does not forget the restarts of the others."""

    def supervise(error: Exception) -> Restart:
        return Restart(limit=3, within=60 if isinstance(error, Boom) else 0.5, backoff=(0.0, 0.0))

    ref, log = await do(actor_kit, supervise=supervise, on=note(Started))
    for message in (boom, lambda _: 1 / 0, boom, lambda _: 1 / 0):
        ref.tell(message)
        await actor_kit.clock.advance(1)
    ref.tell(boom)
    await actor_kit.quiesce()
    assert started(log) == [0, 1, 2, 3, 4]
    assert isinstance((await actor_kit.probe(object).terminated(ref)).cause, Boom)


async def test_an_actor_that_backs_off_is_idle(actor_kit: TestKit) -> None:
    """The live view does not show the failed message as being handled still."""
    ref, _ = await do(actor_kit, supervise=lambda _: Restart(backoff=(5.0, 5.0)))
    ref.tell(boom)
    await actor_kit.quiesce()
    assert [(info.state, info.current) for info in actor_kit.tree()] == [("restarting", None)]


async def test_an_error_that_went_through_an_ask_leaves_the_callee_alone(actor_kit: TestKit) -> None:
    """Both restart because of one error: the asker's restart leaves the callee's frames to the callee."""
    callee, log = await do(actor_kit, "callee", supervise=lambda _: Restart(backoff=(1.0, 1.0)))
    asker, _ = await do(actor_kit, "asker", supervise=lambda _: Restart(backoff=(0.1, 0.1)))

    async def ask(_: Do) -> None:
        await callee.ask(Call, boom)

    asker.tell(ask)
    await actor_kit.clock.advance(5)
    callee.tell("after")
    await actor_kit.quiesce()
    assert log == ["after"]
    assert [info.state for info in actor_kit.tree()] == ["running", "running"]


async def test_a_supervisor_may_raise_the_error_itself(actor_kit: TestKit) -> None:
    """It makes no cycle with its context."""

    def supervise(error: Exception) -> Decision:
        raise error

    ref, _ = await do(actor_kit, supervise=supervise)
    ref.tell(boom)
    cause = (await actor_kit.probe(object).terminated(ref)).cause
    assert isinstance(cause, Boom)
    assert cause.__context__ is None


async def test_a_later_decision_against_children_is_heeded(actor_kit: TestKit) -> None:
    """The decision holds even when no incarnation runs between the two failures."""
    made = 0
    seen: list[int] = []

    def make() -> Do:
        nonlocal made
        made += 1
        if made == 2:
            raise KeyError("factory")
        return Do(on={Started: lambda me, _: seen.append(len(me.ctx.children))})

    def supervise(error: Exception) -> Decision:
        return Restart(backoff=(0.0, 0.0), keep_children=isinstance(error, Boom))

    ref = await actor_kit.spawn(Spec(make, supervise=supervise), "a")
    ref.tell(lambda me: me.ctx.spawn(Spec(Silent), "child"))
    ref.tell(boom)
    await actor_kit.quiesce()
    assert seen == [0, 0]


async def test_a_childs_failure_during_the_parents_backoff_is_the_parents_if_it_ends_there(actor_kit: TestKit) -> None:
    """There is nobody to hear of it, so it is not dealt with."""
    ref, _ = await do(actor_kit, supervise=lambda _: Restart(backoff=(9.0, 9.0), keep_children=True))
    ref.tell(lambda me: me.ctx.spawn(Spec(Silent), "child"))
    (child,) = await ref.ask(Call, lambda me: me.ctx.children)
    ref.tell(boom)
    await actor_kit.quiesce()
    child.tell(lambda _: 1 / 0)
    await actor_kit.quiesce()
    probe = actor_kit.probe(object)
    await actor_kit.stop(ref)
    cause = (await probe.terminated(ref)).cause
    assert isinstance(cause, ActorFailed)
    assert isinstance(cause.exceptions[0], ZeroDivisionError)


async def test_a_kill_while_late_failures_are_heard_loses_none(actor_kit: TestKit) -> None:
    """A handler cut short is the cause of death; the others still run."""
    heard: list[str] = []

    async def hear(_: Do, signal: Terminated) -> None:
        heard.append(signal.ref.path)
        if len(heard) == 1:
            await asyncio.get_running_loop().create_future()

    ref, _ = await do(actor_kit, on={Terminated: hear})

    async def spawn(me: Do) -> None:
        for n in range(3):
            await me.ctx.spawn(Spec(lambda: Do(on={Stopping: boom})), str(n))

    ref.tell(spawn)
    await actor_kit.quiesce()
    stop = asyncio.create_task(actor_kit.stop(ref))
    await actor_kit.quiesce()
    await actor_kit.kill(ref)
    await stop
    cause = (await actor_kit.probe(object).terminated(ref)).cause
    assert heard == ["/test/a/2", "/test/a/1", "/test/a/0"]
    assert isinstance(cause, ActorFailed)
    assert cause.path == "/test/a/2"
