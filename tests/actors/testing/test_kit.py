"""The kit and its probes, on a virtual loop and on any other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any

import pytest

from actors import ActorFailed, AskTimeout, Mailbox, Message, Pressure, Ref, Spec, Started, Stopping
from actors.testing import InlineExecutor, TestKit, VirtualLoop, explore, run
from tests.actors.helpers import Boom, Call, Do, Keep, Silent, boom, do, note

Loop = Callable[[], asyncio.AbstractEventLoop]


def real_loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@pytest.fixture(params=[VirtualLoop, real_loop], ids=["virtual", "real"])
def loop_factory(request: pytest.FixtureRequest) -> Loop:
    return request.param  # type: ignore[no-any-return]


def on(loop_factory: Loop, test: Callable[[TestKit], Any], **options: Any) -> Any:
    async def main() -> Any:
        async with TestKit(**options) as kit:
            return await test(kit)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main())


class Note(Message, frozen=True):
    text: str


def test_quiesce_returns_when_all_that_can_happen_has_happened(loop_factory: Loop) -> None:
    """However long the chain of messages, and asks in between."""

    async def test(kit: TestKit) -> None:
        a, log = await do(kit, "a")
        b, _ = await do(kit, "b")

        def step(n: int) -> Any:
            async def pass_on(me: Do) -> None:
                other = b if me.ctx.self_ref == a else a
                log.append(await other.ask(Call, lambda _: n))
                if n < 50:
                    other.tell(step(n + 1))

            return pass_on

        a.tell(step(0))
        await kit.quiesce()
        assert log == list(range(51))
        assert kit.clock.time() == 0

    on(loop_factory, test)


def test_quiesce_waits_for_blocking_jobs_in_threads(loop_factory: Loop) -> None:
    """A job under way is not quiet."""
    release = threading.Event()

    async def test(kit: TestKit) -> None:
        ref, log = await do(kit)

        async def work(me: Do) -> None:
            me.log.append(await me.ctx.blocking(release.wait, 30))

        ref.tell(work)
        threading.Timer(0.01, release.set).start()
        await kit.quiesce()
        assert log == [True]

    on(loop_factory, test, executor="threads")


def test_framework_timers_are_virtual_on_any_loop(loop_factory: Loop) -> None:
    """Keyed timers, ask timeouts and backoff cost no time."""

    async def test(kit: TestKit) -> None:
        ref, log = await do(kit)
        ref.tell(lambda me: me.ctx.timers.once("k", 3600, "due"))
        await kit.clock.advance(3600)
        assert log == ["due"]
        keeping: Ref[Any] = ref.narrow(lambda keep: lambda me: me.log.append(keep))
        ask = asyncio.create_task(_await(keeping.ask(Keep)))
        await kit.clock.advance(5)
        assert isinstance(ask.exception(), AskTimeout)

    on(loop_factory, test)


def test_the_end_of_the_block_waits_for_no_real_deadline(loop_factory: Loop) -> None:
    """An actor that hangs is killed when its virtual deadline has passed."""

    async def test(kit: TestKit) -> None:
        ref, _ = await do(kit, stop_within=3600)
        ref.tell(lambda _: asyncio.get_running_loop().create_future())
        await kit.quiesce()

    on(loop_factory, test)


def test_remaining_failures_are_raised_at_the_end_with_the_seed(loop_factory: Loop) -> None:
    """A failure does not interrupt the test, and is not lost."""

    async def test(kit: TestKit) -> str:
        ref, _ = await do(kit)
        ref.tell(boom)
        await kit.quiesce()
        (failure,) = kit.failures
        assert isinstance(failure, ActorFailed)
        return "went on"

    with pytest.raises(ExceptionGroup) as caught:
        on(loop_factory, test, seed=42)
    assert caught.group_contains(Boom)
    assert caught.value.__notes__ == ["actors test kit: seed 42"]


def test_an_error_of_the_test_gets_the_seed_as_a_note() -> None:
    """The note lets a reader replay the failed run."""

    async def test(kit: TestKit) -> None:
        raise Boom

    with pytest.raises(Boom) as caught:
        on(VirtualLoop, test, seed=7)
    assert caught.value.__notes__ == ["actors test kit: seed 7"]


async def test_a_probe_receives_in_order_and_names_the_message_that_came_instead(actor_kit: TestKit) -> None:
    """The error names the expected and the received message, and the state of things."""
    probe = actor_kit.probe(object)
    other, _ = await do(actor_kit, "other")
    other.tell(boom)
    busy, _ = await do(actor_kit, "busy")
    busy.tell(lambda _: asyncio.get_running_loop().create_future())
    probe.tell(Note("one"))
    probe.tell(2)
    assert await probe.expect(Note) == Note("one")
    with pytest.raises(AssertionError) as wrong:
        await probe.expect(str)
    other.tell("late")
    with pytest.raises(AssertionError) as nothing:
        await probe.expect(Note, within=2)
    text = str(nothing.value)
    assert "expected str, but 2 came" in str(wrong.value)
    assert "probe /test/probe-1: expected Note within 2 s, but nothing came (seed 0, time 2 s)" in text
    assert "received before: Note(text='one')" in text
    assert "failed: ActorFailed" in text
    assert "undelivered: 'late' to /test/other (stopped)" in text
    assert "/test/busy: running, 0 queued, handling function" in text
    assert probe.received == (Note("one"), 2)
    actor_kit.failures.clear()


async def test_expect_lets_time_go_by_but_no_more_than_told(actor_kit: TestKit) -> None:
    """A message that comes later is waited for in virtual time."""
    probe = actor_kit.probe(str)
    ref, _ = await do(actor_kit)
    ref.tell(lambda me: me.ctx.timers.once("k", 3, lambda _: probe.tell("x")))
    with pytest.raises(AssertionError, match="within 2 s"):
        await probe.expect(str, within=2)
    assert await probe.expect(str) == "x"
    assert actor_kit.clock.time() == 3


async def test_silent_fails_when_something_came(actor_kit: TestKit) -> None:
    """Nothing means nothing, once all is quiet."""
    probe = actor_kit.probe(str)
    ref, _ = await do(actor_kit)
    await probe.silent()
    ref.tell(lambda _: probe.tell("x"))
    with pytest.raises(AssertionError, match="expected nothing, but 'x' came"):
        await probe.silent()


async def test_a_probe_watches_and_sees_ends_and_pressure(actor_kit: TestKit) -> None:
    """terminated() removes the failure from those that are raised at the end, and fails for a living actor."""
    probe = actor_kit.probe(object)
    ref, _ = await do(actor_kit, mailbox=Mailbox(watermarks=(0, 1)))
    other, _ = await do(actor_kit, "other")
    probe.watch(ref)
    probe.watch(other)
    probe.unwatch(other)
    await actor_kit.stop(other)
    ref.tell("x")
    await actor_kit.quiesce()
    assert probe.signals == (Started(0), Pressure(ref, high=True), Pressure(ref, high=False))
    with pytest.raises(AssertionError, match="expected the end of /test/a within 1 s, but it is alive"):
        await probe.terminated(ref)
    ref.tell(boom)
    assert isinstance((await probe.terminated(ref)).cause, Boom)
    assert actor_kit.failures == []


async def test_blocking_jobs_run_inline_by_default(actor_kit: TestKit) -> None:
    """In the test's own thread, in order, with their errors."""
    ref, _ = await do(actor_kit)
    assert await ref.ask(Call, lambda me: me.ctx.blocking(threading.get_ident)) == threading.get_ident()
    assert isinstance(InlineExecutor().submit(boom).exception(), Boom)


async def test_an_executor_may_be_handed_to_the_kit() -> None:
    """For jobs that need a thread of a certain kind."""
    used: list[str] = []

    class Noting(Executor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            used.append("used")
            return InlineExecutor().submit(fn, *args, **kwargs)

    async with TestKit(executor=Noting()) as kit:
        ref, _ = await do(kit)
        assert await ref.ask(Call, lambda me: me.ctx.blocking(int)) == 0
    assert used == ["used"]


async def racy(kit: TestKit) -> None:
    """Fail in the schedules in which b is before a."""
    log: list[str] = []
    refs = [await kit.spawn(Spec(Silent), name) for name in "ab"]
    for ref in refs:
        ref.tell(lambda me: log.append(me.ctx.path))
    await kit.quiesce()
    assert log == ["/test/a", "/test/b"]


def test_explore_finds_a_schedule_that_fails_and_it_fails_again() -> None:
    """The seed is the whole schedule."""
    found = explore(racy, runs=50)
    assert found is not None
    assert isinstance(found.error, AssertionError)
    for _ in range(2):
        with pytest.raises(AssertionError):
            run(racy, seed=found.seed)
    assert explore(racy, runs=1, seed=found.seed) is not None


def test_explore_returns_none_when_all_schedules_pass() -> None:
    """No news is good news."""

    async def fine(kit: TestKit) -> None:
        await do(kit)

    assert explore(fine, runs=5) is None


def test_explore_returns_failures_of_pytest() -> None:
    """`pytest.fail()`, and `pytest.raises` where nothing is raised, fail a seed as any error does, though they are no Exceptions."""

    async def told(_kit: TestKit) -> None:
        pytest.fail("told so")

    async def not_raised(_kit: TestKit) -> None:
        with pytest.raises(ValueError, match="never"):
            pass

    for test, text in ((told, "told so"), (not_raised, "DID NOT RAISE")):
        found = explore(test, runs=2, seed=3)
        assert found is not None
        assert found.seed == 3
        assert text in str(found.error)


def test_explore_lets_out_what_is_no_failure() -> None:
    """A test that is skipped, or is expected to fail, is so under each seed, and the same goes for interrupts."""

    async def raising(_kit: TestKit, error: BaseException) -> None:
        raise error

    for error in (pytest.skip.Exception("not here"), pytest.xfail.Exception("known"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            explore(partial(raising, error=error), runs=2)


async def test_several_kits_share_one_loop() -> None:
    """Their actors talk to each other; each ends its own."""
    async with TestKit(name="one") as one, TestKit(name="two") as two:
        log: list[Any] = []
        a, _ = await do(one, "a", on=note(Stopping))
        b = await two.spawn(Spec(lambda: Do(log)), "b")
        a.tell(lambda _: b.tell("hello"))
        await one.quiesce()
        await two.quiesce()
        assert log == ["hello"]


async def _await(ask: Any) -> Any:
    return await ask


def test_due_timers_fire_before_it_is_quiet(loop_factory: Loop) -> None:
    """On any loop."""

    async def test(kit: TestKit) -> None:
        ref, log = await do(kit)
        ref.tell(lambda me: me.ctx.timers.once("k", 0, "due"))
        await kit.quiesce()
        assert log == ["due"]

    on(loop_factory, test)


@pytest.mark.parametrize("name", ["run", "explore"])
@pytest.mark.filterwarnings("error")
async def test_a_running_loop_is_no_place_for_another_one(name: str) -> None:
    """The error says which other way there is, before the test is called; `explore` does not take it for a failing seed."""

    async def test(_kit: TestKit) -> None:
        raise AssertionError("called")

    with pytest.raises(
        RuntimeError, match=rf"^actors.testing.{name} makes an event loop of its own, but one runs here already.* use `async with TestKit\(\)`"
    ):
        if name == "run":
            run(test)
        else:
            explore(test)


async def test_a_probe_expects_one_of_several_types(actor_kit: TestKit) -> None:
    """And names them when nothing, or something else, has come."""
    either: Any = int | str
    probe = actor_kit.probe(object)
    with pytest.raises(AssertionError, match=r"expected int \| str within 1 s, but nothing came"):
        await probe.expect(either)
    probe.tell("text")
    assert await probe.expect(either) == "text"
