"""The start and the end of actors."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

import pytest

from actors import (
    Actor,
    ActorStopped,
    Failed,
    Mailbox,
    NameTaken,
    NotAChild,
    Ref,
    SelfDeadlock,
    Spec,
    Started,
    StartFailed,
    StashFull,
    Stopping,
    StrayCancellation,
    System,
    Undelivered,
)
from actors.supervision._lifecycle import State, move
from actors.testing import TestKit
from tests.actors.helpers import Boom, Call, Do, Silent, boom, do, note

pytestmark = pytest.mark.actors(runs=5)


def test_an_illegal_transition_names_both_states() -> None:
    """The table of states is closed."""
    with pytest.raises(RuntimeError, match="/s/a cannot go from STOPPED to RUNNING"):
        move(State.STOPPED, State.RUNNING, "/s/a")


@pytest.mark.parametrize("options", [{"stop_within": -1.0}, {"executor": "many"}])
def test_an_impossible_spec_is_refused(options: dict[str, Any]) -> None:
    """A spec that cannot be is a ValueError where it is written."""
    with pytest.raises(ValueError, match=next(iter(options))):
        Spec(Silent, **options)


async def test_spawn_returns_once_started_is_handled(actor_kit: TestKit) -> None:
    """A ref always belongs to an actor that has started."""
    log: list[Any] = []

    async def start(me: Do, signal: Started) -> None:
        await me.ctx.blocking(log.append, signal)

    await actor_kit.spawn(Spec(lambda: Do(log, {Started: start})), "a")
    assert log == [Started(0)]


@pytest.mark.parametrize("name", ["", "a/b"])
async def test_a_name_that_is_none_is_refused(actor_kit: TestKit, name: str) -> None:
    """Names are not empty and have no slash."""
    with pytest.raises(ValueError, match="non-empty string without '/'"):
        await actor_kit.spawn(Spec(Silent), name)


async def test_a_name_is_taken_until_its_actor_has_ended(actor_kit: TestKit) -> None:
    """Siblings have different names; a dead one's may be used again."""
    ref, _ = await do(actor_kit)
    with pytest.raises(NameTaken, match="/test/a exists"):
        await do(actor_kit)
    await actor_kit.stop(ref)
    again, _ = await do(actor_kit)
    assert again != ref


async def test_a_failing_factory_is_raised_to_the_spawner_and_leaves_nothing(actor_kit: TestKit) -> None:
    """No zombie: the name is free again at once."""
    failed: list[Failed] = []
    actor_kit.subscribe(Failed, failed.append)
    with pytest.raises(StartFailed, match="/test/a failed to start") as caught:
        await actor_kit.spawn(Spec(boom), "a")  # type: ignore[arg-type]
    assert isinstance(caught.value.__cause__, Boom)
    assert actor_kit.tree() == []
    assert [event.decision for event in failed] == ["start"]
    await do(actor_kit)


async def test_a_failing_started_is_raised_to_the_spawner_and_leaves_nothing(actor_kit: TestKit) -> None:
    """Children of the half-started actor are gone too, and it hears no Stopping, as it never started."""
    log: list[Any] = []

    async def start(me: Do, _: Started) -> None:
        await me.ctx.spawn(Spec(lambda: Do(log, note(Stopping))), "child")
        boom()

    with pytest.raises(StartFailed) as caught:
        await actor_kit.spawn(Spec(lambda: Do(log, {Started: start, **note(Stopping)})), "a")
    assert isinstance(caught.value.__cause__, Boom)
    assert actor_kit.tree() == []
    assert log == [Stopping("shutdown")]
    assert actor_kit.failures == []


async def test_a_started_that_awaits_something_cancelled_has_failed(actor_kit: TestKit) -> None:
    """A stray cancellation is not mistaken for the spawner's own."""

    async def start(_me: Do, _signal: Started) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    with pytest.raises(StartFailed) as caught:
        await do(actor_kit, on={Started: start})
    assert isinstance(caught.value.__cause__, StrayCancellation)


async def test_cancelling_a_spawn_kills_the_half_started_actor(actor_kit: TestKit) -> None:
    """Spawn is all or nothing."""

    async def start(_me: Do, _signal: Started) -> None:
        await asyncio.get_running_loop().create_future()

    spawn = asyncio.create_task(do(actor_kit, on={Started: start}))
    await actor_kit.quiesce()
    spawn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await spawn
    await actor_kit.quiesce()
    assert actor_kit.tree() == []


async def test_killing_a_half_started_actor_tells_its_spawner(actor_kit: TestKit) -> None:
    """A caller that waits for the start of a killed actor gets ActorStopped."""

    async def start(_me: Do, _signal: Started) -> None:
        await asyncio.get_running_loop().create_future()

    parent, log = await do(actor_kit, "parent")

    async def spawn(me: Do) -> None:
        try:
            await me.ctx.spawn(Spec(lambda: Do(on={Started: start})), "child")
        except ActorStopped as error:
            me.log.append(error.path)

    parent.tell(spawn)
    await actor_kit.quiesce()
    cell: Any = actor_kit._family
    (child,) = [info.path for info in actor_kit.tree() if info.path.endswith("child")]
    assert child == "/test/parent/child"
    (half,) = next(iter(cell)).children
    await actor_kit.kill(half.ref)
    await actor_kit.quiesce()
    assert log == ["/test/parent/child"]


async def test_an_actor_may_stop_itself_while_it_starts(actor_kit: TestKit) -> None:
    """It has started, so the spawner gets a ref; then it ends."""
    ref, log = await do(actor_kit, on={Started: lambda me, _: me.ctx.stop(), **note(Stopping)})
    end = await actor_kit.terminated(ref)
    assert end.cause is None
    assert log == [Stopping("stop")]


async def test_a_soft_stop_lets_the_current_message_end_and_drops_the_rest(actor_kit: TestKit) -> None:
    """After the current message come the undelivered ones, the Stopping signal, and the end."""
    gate = asyncio.get_running_loop().create_future()

    async def work(me: Do) -> None:
        await gate
        me.log.append("worked")

    ref, log = await do(actor_kit, on=note(Stopping))
    ref.tell(work)
    await actor_kit.quiesce()
    ref.tell("behind")
    stop = asyncio.create_task(actor_kit.stop(ref))
    await actor_kit.quiesce()
    assert log == []
    gate.set_result(None)
    await stop
    assert log == ["worked", Stopping("stop")]
    assert actor_kit.undelivered == [Undelivered("/test/a", "behind", "stopped")]


async def test_a_soft_stop_becomes_hard_at_its_deadline(actor_kit: TestKit) -> None:
    """A handler that does not come back is cancelled after stop_within seconds, and Stopping is still heard."""
    ref, log = await do(actor_kit, stop_within=3, on=note(Stopping))
    ref.tell(lambda _: asyncio.get_running_loop().create_future())
    await actor_kit.quiesce()
    stop = asyncio.create_task(actor_kit.stop(ref))
    await actor_kit.clock.advance(2.9)
    assert log == []
    await actor_kit.clock.advance(0.1)
    await stop
    assert log == [Stopping("stop")]


async def test_a_kill_cancels_the_current_message_now(actor_kit: TestKit) -> None:
    """A hard stop does not wait."""
    ref, log = await do(actor_kit, on=note(Stopping))

    async def work(me: Do) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            me.log.append("cleaned up")

    ref.tell(work)
    await actor_kit.quiesce()
    await actor_kit.kill(ref)
    assert log == ["cleaned up", Stopping("stop")]
    assert actor_kit.clock.time() == 0
    await actor_kit.kill(ref)


async def test_a_handler_that_swallows_its_cancellation_is_cancelled_again(actor_kit: TestKit) -> None:
    """A kill is repeated until it works."""
    swallowed: list[int] = []

    async def stubborn(_: Do) -> None:
        for n in range(3):
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                swallowed.append(n)

    ref, log = await do(actor_kit, stop_within=1, on=note(Stopping))
    ref.tell(stubborn)
    await actor_kit.quiesce()
    stop = asyncio.create_task(actor_kit.stop(ref))
    await actor_kit.clock.advance(4)
    await stop
    assert swallowed == [0, 1, 2]
    assert log == [Stopping("stop")]


async def test_a_stopping_that_hangs_is_cancelled_at_its_own_deadline(actor_kit: TestKit) -> None:
    """The last words have stop_within seconds as well; not to end in time is a failure."""
    ref, _ = await do(actor_kit, stop_within=2, on={Stopping: lambda me, _: asyncio.get_running_loop().create_future()})
    stop = asyncio.create_task(actor_kit.stop(ref))
    await actor_kit.clock.advance(1.9)
    assert not stop.done()
    await actor_kit.clock.advance(0.1)
    await stop
    cause = (await actor_kit.probe(object).terminated(ref)).cause
    assert isinstance(cause, TimeoutError)
    assert str(cause) == "Stopping of /test/a was not handled within 2 s (stop_within)"


async def test_a_failure_in_stopping_is_the_cause_of_death(actor_kit: TestKit) -> None:
    """An error at the very end is not lost; it does not hide an earlier one."""
    for first in (None, lambda _: 1 / 0):
        ref, _ = await do(actor_kit, f"a-{first is None}", on={Stopping: boom})
        probe = actor_kit.probe(object)
        ref.tell(first or (lambda me: me.ctx.stop()))
        end = await probe.terminated(ref)
        assert isinstance(end.cause, Boom if first is None else ZeroDivisionError)


async def test_children_end_before_their_parent_youngest_first(actor_kit: TestKit) -> None:
    """Reverse start order, all the way down."""
    log: list[str] = []

    def noting(path: str, children: int) -> Spec[Any]:
        async def start(me: Do, _: Started) -> None:
            for n in range(children):
                await me.ctx.spawn(noting(f"{path}.{n}", children - 1), str(n))

        return Spec(lambda: Do(on={Started: start, Stopping: lambda _, signal: log.append(path)}))

    first = await actor_kit.spawn(noting("0", 2), "first")
    await actor_kit.stop(first)
    assert log == ["0.1.0", "0.1", "0.0.0", "0.0", "0"]


async def test_the_system_stops_its_actors_youngest_first() -> None:
    """The block ends as a parent does."""
    log: list[tuple[str, str]] = []
    async with TestKit() as kit:
        for name in "abc":
            await do(kit, name, on={Stopping: lambda me, signal: log.append((me.ctx.path, signal.reason))})
    assert log == [("/test/c", "shutdown"), ("/test/b", "shutdown"), ("/test/a", "shutdown")]


async def test_a_parent_waits_for_its_children_before_its_own_last_words(actor_kit: TestKit) -> None:
    """A child's deadline is its own; killing the parent meanwhile kills the children at once."""
    for hard in (False, True):
        log: list[str] = []
        parent, _ = await do(actor_kit, f"parent-{hard}", on={Stopping: lambda _, __, log=log: log.append("parent")})

        def child(log: list[str] = log) -> Do:
            return Do(on={Stopping: lambda *_: log.append("child")})

        parent.tell(lambda me, child=child: me.ctx.spawn(Spec(child, stop_within=8), "child"))
        (ref,) = await parent.ask(Call, lambda me: me.ctx.children)
        ref.tell(lambda _: asyncio.get_running_loop().create_future())
        await actor_kit.quiesce()
        before = actor_kit.clock.time()
        stop = asyncio.create_task(actor_kit.stop(parent))
        await actor_kit.clock.advance(6)
        assert log == []
        if hard:
            await actor_kit.kill(parent)
        else:
            await actor_kit.clock.advance(2)
        await stop
        assert log == ["child", "parent"]
        assert actor_kit.clock.time() - before == (6 if hard else 8)


async def test_a_parent_stops_and_kills_its_own_children_only(actor_kit: TestKit) -> None:
    """Others are told a message on which they stop themselves."""
    stranger, _ = await do(actor_kit, "stranger")
    parent, log = await do(actor_kit, "parent")

    async def spawn_and_stop(me: Do) -> None:
        for verb in (me.ctx.stop, me.ctx.kill):
            child = await me.ctx.spawn(Spec(lambda: Do(me.log, note(Stopping))), verb.__name__)
            me.ctx.watch(child)
            verb(child)
            try:
                verb(stranger)
            except NotAChild as error:
                me.log.append(str(error))

    parent.tell(spawn_and_stop)
    await actor_kit.quiesce()
    assert log.count(Stopping("stop")) == 2
    assert sum("/test/stranger is not below /test/parent" in str(entry) for entry in log) == 2
    assert [info.path for info in actor_kit.tree()] == ["/test/stranger", "/test/parent"]


async def test_stopping_twice_is_stopping_once(actor_kit: TestKit) -> None:
    """Stop is a state, not an event."""
    ref, log = await do(actor_kit, on=note(Stopping))
    await asyncio.gather(actor_kit.stop(ref), actor_kit.stop(ref))
    await actor_kit.stop(ref)
    assert log == [Stopping("stop")]


async def test_an_actor_that_is_ending_spawns_nothing(actor_kit: TestKit) -> None:
    """Nobody is born to a parent that has said its last words to its children."""

    async def spawn(me: Do, _: Stopping) -> None:
        try:
            await me.ctx.spawn(Spec(Silent), "too-late")
        except ActorStopped as error:
            me.log.append(error.path)

    ref, log = await do(actor_kit, on={Stopping: spawn})
    await actor_kit.stop(ref)
    assert log == ["/test/a"]


async def test_an_actor_cannot_wait_for_its_own_end(actor_kit: TestKit) -> None:
    """System.stop, kill and terminated raise instead of deadlocking when an actor calls them for itself."""
    ref, log = await do(actor_kit)

    async def wait_for_myself(me: Do) -> None:
        for verb in (actor_kit.stop, actor_kit.kill, actor_kit.terminated):
            try:
                await verb(me.ctx.self_ref)
            except SelfDeadlock as error:
                me.log.append(error.path)

    ref.tell(wait_for_myself)
    await actor_kit.quiesce()
    assert log == ["/test/a"] * 3


async def test_stash_and_unstash_keep_the_order(actor_kit: TestKit) -> None:
    """Unstashed messages come before those that are queued, oldest first."""
    ref, log = await do(actor_kit)

    def all_at_once(me: Do) -> None:
        for n in range(3):
            me.ctx.stash(n)
        ref.tell("queued")
        me.ctx.unstash()
        me.ctx.unstash()

    ref.tell(all_at_once)
    await actor_kit.quiesce()
    assert log == [0, 1, 2, "queued"]


async def test_a_full_stash_raises_and_a_stop_leaves_it_undelivered(actor_kit: TestKit) -> None:
    """The stash is bounded, and its messages are not lost silently."""
    ref, log = await do(actor_kit, mailbox=Mailbox(stash=2))

    def stash_three(me: Do) -> None:
        try:
            for n in range(3):
                me.ctx.stash(n)
        except StashFull as error:
            me.log.append(error.limit)
        me.ctx.stop()

    ref.tell(stash_three)
    await actor_kit.quiesce()
    assert log == [2]
    assert [letter.message for letter in actor_kit.undelivered] == [0, 1]


async def test_an_actor_without_receive_says_so(actor_kit: TestKit) -> None:
    """Forgetting `receive` is named, not a silent loss."""

    class Nothing(Actor[int]):
        pass

    ref: Ref[int] = await actor_kit.spawn(Spec(Nothing), "a")
    ref.tell(1)
    end = await actor_kit.probe(object).terminated(ref)
    assert "Nothing must define receive(message)" in str(end.cause)


async def test_a_context_tells_the_time_and_the_path(actor_kit: TestKit) -> None:
    """An actor's own view of where and when it is."""
    ref, _ = await do(actor_kit)
    await actor_kit.clock.advance(7)
    assert await ref.ask(Call, lambda me: (me.ctx.path, me.ctx.time(), me.ctx.children)) == ("/test/a", 7.0, ())


async def test_a_kill_right_after_spawn_ends_the_actor_before_it_has_begun(actor_kit: TestKit) -> None:
    """By the system or by its parent, though its task has not run yet."""
    ref: Ref[Any] = await actor_kit.spawn(Spec(Silent), "a")
    ref.tell("queued")
    await actor_kit.kill(ref)
    assert [letter.message for letter in actor_kit.undelivered] == ["queued"]
    parent, _ = await do(actor_kit, "parent")

    async def spawn_and_kill(me: Do) -> None:
        me.ctx.kill(await me.ctx.spawn(Spec(Silent), "child"))

    parent.tell(spawn_and_kill)
    await actor_kit.quiesce()
    assert [info.path for info in actor_kit.tree()] == ["/test/parent"]


async def test_a_task_that_is_cancelled_before_its_first_step_leaves_no_zombie(actor_kit: TestKit) -> None:
    """Cancelling all tasks also ends the actors that have just been spawned."""
    ref: Ref[Any] = await actor_kit.spawn(Spec(Silent), "a")
    cell: Any = ref._inbox.owner
    cell.task.cancel()
    assert (await actor_kit.terminated(ref)).cause is None
    assert actor_kit.tree() == []


async def test_a_handler_that_swallows_a_kill_is_the_last_one(actor_kit: TestKit) -> None:
    """Messages queued behind it are not handled any more."""

    async def swallow(me: Do) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            me.log.append("swallowed")

    ref, log = await do(actor_kit)
    ref.tell(swallow)
    for n in range(5):
        ref.tell(n)
    await actor_kit.quiesce()
    await actor_kit.kill(ref)
    assert log == ["swallowed"]
    assert actor_kit.clock.time() == 0


async def test_a_start_that_swallows_the_spawners_cancellation_is_the_end(actor_kit: TestKit) -> None:
    """A spawn that was cancelled leaves no actor, however stubborn."""

    async def swallow(me: Do, _: Started) -> None:
        me.ctx.self_ref.tell("for later")
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            me.log.append("swallowed")

    log: list[Any] = []
    spawn = asyncio.create_task(actor_kit.spawn(Spec(lambda: Do(log, {Started: swallow})), "a"))
    await actor_kit.quiesce()
    spawn.cancel()
    await asyncio.wait([spawn])
    await actor_kit.quiesce()
    assert spawn.cancelled()
    assert log == ["swallowed"]
    assert actor_kit.tree() == []


async def test_a_start_that_meets_a_dead_actor_has_failed_like_any_other(actor_kit: TestKit) -> None:
    """ActorStopped of another is a cause, not the answer."""
    dead, _ = await do(actor_kit, "dead")
    await actor_kit.stop(dead)

    async def ask_the_dead(_me: Do, _signal: Started) -> None:
        await dead.ask(Call, lambda _: None)

    with pytest.raises(StartFailed, match="/test/a failed to start") as caught:
        await do(actor_kit, on={Started: ask_the_dead})
    assert isinstance(caught.value.__cause__, ActorStopped)


async def test_nobody_waits_for_the_end_of_an_actor_above_itself(actor_kit: TestKit) -> None:
    """A child that would wait for its parent would wait for itself."""
    parent, _ = await do(actor_kit, "parent")
    parent.tell(lambda me: me.ctx.spawn(Spec(Do), "child"))
    (child,) = await parent.ask(Call, lambda me: me.ctx.children)
    errors: list[str] = []

    async def stop_parent(_: Do) -> None:
        try:
            await actor_kit.stop(parent)
        except SelfDeadlock as error:
            errors.append(str(error))

    child.tell(stop_parent)
    await actor_kit.quiesce()
    assert "/test/parent would wait for itself in System.stop" in errors[0]


async def test_a_system_stops_its_own_actors_only(actor_kit: TestKit) -> None:
    """A ref may lead to another system, on another loop even."""
    async with TestKit(name="other") as other:
        ref, _ = await do(other)
        with pytest.raises(NotAChild, match="/other/a is not below /test"):
            await actor_kit.stop(ref)


async def test_an_actor_killed_while_it_starts_is_no_failure_for_its_watchers(actor_kit: TestKit) -> None:
    """It ended without a cause."""
    seen: list[Any] = []

    async def start(me: Do, _: Started) -> None:
        seen.append(me.ctx.self_ref)
        await asyncio.get_running_loop().create_future()

    spawn = asyncio.create_task(do(actor_kit, on={Started: start}))
    await actor_kit.quiesce()
    probe = actor_kit.probe(object)
    probe.watch(seen[0])
    await actor_kit.kill(seen[0])
    assert (await probe.terminated(seen[0])).cause is None
    with pytest.raises(ActorStopped):
        await spawn


async def test_a_second_soft_stop_does_not_make_the_first_one_hard(actor_kit: TestKit) -> None:
    """While it is stopping, each step has a deadline of its own."""
    log: list[str] = []

    async def last_words(me: Do, _: Stopping) -> None:
        me.ctx.timers.once("k", 1, "never")
        await _pass(actor_kit, 0.8)
        log.append(me.ctx.path)

    parent, _ = await do(actor_kit, "parent", stop_within=1)

    async def spawn(me: Do) -> None:
        for n in range(3):
            await me.ctx.spawn(Spec(lambda: Do(on={Stopping: last_words}), stop_within=1), str(n))

    parent.tell(spawn)
    await actor_kit.quiesce()
    stops = [asyncio.create_task(actor_kit.stop(parent))]
    await actor_kit.quiesce()
    stops.append(asyncio.create_task(actor_kit.stop(parent)))
    await actor_kit.clock.advance(5)
    await asyncio.gather(*stops)
    assert log == ["/test/parent/2", "/test/parent/1", "/test/parent/0"]


async def _pass(kit: TestKit, seconds: float) -> None:
    """Wait in the kit's time."""
    waiter = asyncio.get_running_loop().create_future()
    kit.clock.call_later(seconds, waiter.set_result, None)
    await waiter


async def test_waiting_for_an_end_in_vain_leaves_nothing_behind(actor_kit: TestKit) -> None:
    """A wait that was cancelled is forgotten."""
    ref, _ = await do(actor_kit)
    for _ in range(10):
        wait = asyncio.create_task(actor_kit.terminated(ref))
        await actor_kit.quiesce()
        wait.cancel()
        await asyncio.wait([wait])
    cell: Any = ref._inbox.owner
    assert cell._mourners == []


class Nasty:
    """A message that cannot be looked into."""

    __slots__ = ("reply",)

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


async def test_a_message_that_cannot_be_looked_into_harms_nobody(actor_kit: TestKit) -> None:
    """Neither the end of the actor that has it queued, nor a tell to a dead one."""

    class Empty:
        pass

    dead = weakref.proxy(Empty())
    ref, _ = await do(actor_kit)

    def queue_and_stop(me: Do) -> None:
        for message in (Nasty(), dead, (dead,)):
            ref.tell(message)
        me.ctx.stop()

    ref.tell(queue_and_stop)
    await actor_kit.terminated(ref)
    ref.tell(Nasty())
    assert len(actor_kit.undelivered) == 4


async def test_a_subscriber_that_lets_a_cancellation_out_harms_nobody(actor_kit: TestKit) -> None:
    """The end of an actor goes on."""
    cancelled = asyncio.get_running_loop().create_future()
    cancelled.cancel()
    actor_kit.subscribe(Undelivered, lambda _: cancelled.result())
    ref, _ = await do(actor_kit)

    def queue_and_stop(me: Do) -> None:
        ref.tell("dead")
        me.ctx.stop()

    ref.tell(queue_and_stop)
    assert (await actor_kit.terminated(ref)).cause is None


async def test_waiting_callers_get_any_error_of_the_last_moment(actor_kit: TestKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in the clearing away is raised at the end of the block; it freezes nobody."""
    system = System("s", stall_after=None)
    with pytest.raises(Boom):
        async with system:
            ref: Ref[Any] = await system.spawn(Spec(Silent), "a")
            monkeypatch.setattr(type(ref._inbox), "clear", boom)
            await system.stop(ref)
            monkeypatch.undo()
    assert system.tree() == []
