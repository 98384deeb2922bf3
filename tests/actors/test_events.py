"""The reports of a system about itself: events, log, live view, stalls."""

from __future__ import annotations

import asyncio
import builtins
import importlib
import logging
import queue
import selectors
import socket
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import pytest

from actors import ActorInfo, DeadLetter, Failed, Mailbox, Message, Resume, Spec, Stalled, System, Terminated, Undelivered
from actors.events._events import EventStream
from actors.events._place import place_in
from actors.events._stall import StallDetector, _waits
from actors.loop import Doorbell
from actors.testing import TestKit
from tests.actors.helpers import Boom, Call, Do, Silent, boom, do
from tests.waiting import until


class Secret(Message, frozen=True):
    password: str


def test_events_go_to_subscribers_of_their_type() -> None:
    """In the order of subscription, until it is ended; ending twice is ending once."""
    stream = EventStream()
    seen: list[Any] = []
    end = stream.subscribe(int, lambda event: seen.append(("first", event)))
    stream.subscribe(int, lambda event: seen.append(("second", event)))
    stream.subscribe(str, lambda event: seen.append(("text", event)))
    stream.publish(1)
    end()
    end()
    stream.publish(2)
    stream.publish("x")
    stream.publish(2.0)
    assert seen == [("first", 1), ("second", 1), ("second", 2), ("text", "x")]


def test_a_handler_that_raises_harms_neither_the_publisher_nor_the_other_handlers(caplog: pytest.LogCaptureFixture) -> None:
    """Its error is logged."""
    stream = EventStream()
    seen: list[int] = []
    stream.subscribe(int, boom)
    stream.subscribe(int, seen.append)
    stream.publish(1)
    assert seen == [1]
    assert "of the actor event stream failed on int of no actor" in caplog.text


async def test_the_live_view_shows_all_actors_without_a_message(actor_kit: TestKit) -> None:
    """Parents before children, each with its current message type; the content of messages is not shown."""
    gate = asyncio.get_running_loop().create_future()
    parent, _ = await do(actor_kit, "parent")
    await parent.ask(Call, lambda me: me.ctx.spawn(Spec(Do), "child"))
    (child,) = await parent.ask(Call, lambda me: me.ctx.children)

    async def wait(_: Any) -> None:
        await gate

    child.tell("one")
    child.tell(wait)
    await actor_kit.quiesce()
    child.tell(Secret("hunter2"))
    tree = actor_kit.tree()
    assert [(info.path, info.state, info.depth, info.current, info.processed) for info in tree] == [
        ("/test/parent", "running", 0, None, 2),
        ("/test/parent/child", "running", 1, "function", 1),
    ]
    assert tree[0].busy_for == 0
    assert tree[1].busy_for > 0
    assert tree[0].busy > 0
    assert all(isinstance(info, ActorInfo) for info in tree)
    gate.set_result(None)


async def test_undelivered_messages_are_logged_by_type_and_muted_after_ten(actor_kit: TestKit, caplog: pytest.LogCaptureFixture) -> None:
    """Ten, then silence for 300 s, then their number; never the content of a message."""
    ref, _ = await do(actor_kit)
    await actor_kit.stop(ref)
    for _ in range(15):
        ref.tell(Secret("hunter2"))
    assert caplog.text.count("undelivered: Secret to /test/a (stopped)") == 10
    await actor_kit.clock.advance(301)
    ref.tell(Secret("hunter2"))
    assert "5 more undelivered messages in the last 301 s" in caplog.text
    assert caplog.text.count("undelivered: Secret") == 11
    assert "hunter2" not in caplog.text


async def test_former_names_of_undelivered_messages_still_work(actor_kit: TestKit) -> None:
    """The event, the kit's list and the overflow policy are known by `dead_letter`, too."""
    seen: list[DeadLetter] = []
    actor_kit.subscribe(DeadLetter, seen.append)
    ref, _ = await do(actor_kit)
    await actor_kit.stop(ref)
    ref.tell("late")
    assert actor_kit.dead_letters is actor_kit.undelivered
    assert seen == actor_kit.undelivered == [Undelivered("/test/a", "late", "stopped")]
    assert Mailbox(overflow="dead_letter").overflow == "dead_letter"


async def test_a_stall_is_one_line_and_its_stack_is_for_debugging(actor_kit: TestKit, caplog: pytest.LogCaptureFixture) -> None:
    """The line names time, actor and message at WARNING; the stack is at DEBUG."""
    caplog.set_level(logging.DEBUG, "actors")
    assert actor_kit._core is not None
    actor_kit._core.publish(Stalled("/test/a", Secret("hunter2"), 0.092, "  File a\n    File b\n"))
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert lines == [
        ("WARNING", "the event loop stood still for 0.092 s in actor /test/a at Secret"),
        ("DEBUG", "where the event loop stood still:\n  File a\n    File b\n"),
    ]


async def test_a_stall_in_nobodys_code_is_a_warning_from_a_limit_on(caplog: pytest.LogCaptureFixture) -> None:
    """A shorter one is at DEBUG, with its stack; one in the user's code is a warning whatever its length."""
    caplog.set_level(logging.DEBUG, "actors")
    async with System("s", stall_after=None, least_stall=lambda: 1.0) as system:
        assert system._core is not None
        for seconds, place in ((0.9, ""), (1.1, ""), (0.9, "load (/app/load.py:12)")):
            system._core.publish(Stalled("", None, seconds, "", place))
    told = [(record.levelname, record.getMessage().partition(";")[0]) for record in caplog.records if "for " in record.getMessage()]
    assert told == [
        ("DEBUG", "the event loop stood still for 0.900 s in no actor's code"),
        ("WARNING", "the event loop stood still for 1.100 s in no actor's code"),
        ("WARNING", "the event loop stood still for 0.900 s in load (/app/load.py:12)"),
    ]


async def test_the_place_of_an_import_is_the_code_that_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of a module, and all that it calls, is no place of a user's; an import by the library itself has none."""
    (tmp_path / "slow_to_import.py").write_text("import builtins\ndef note(): builtins.note()\nnote()\n")
    monkeypatch.syspath_prepend(tmp_path)
    places: list[str] = []
    monkeypatch.setattr(builtins, "note", lambda: places.append(place_in(sys._getframe())), raising=False)

    def imports() -> None:
        sys.modules.pop("slow_to_import", None)
        importlib.import_module("slow_to_import")

    imports()
    asyncio.get_running_loop().call_soon(as_the_library(imports))
    await asyncio.sleep(0)
    assert places == [f"{imports.__qualname__} ({__file__}:{imports.__code__.co_firstlineno + 2})", ""]


async def test_a_stall_in_the_users_code_names_the_place_and_the_remedy(actor_kit: TestKit, caplog: pytest.LogCaptureFixture) -> None:
    """One line has function, file and line, with the actor if there is one."""
    assert actor_kit._core is not None
    for path in ("/test/a", ""):
        actor_kit._core.publish(Stalled(path, Secret("hunter2"), 0.092, "  File a\n", "load (/app/load.py:12)"))
    remedy = "; work that holds the loop belongs in a thread: use blocking, or asyncio.to_thread"
    assert [record.getMessage() for record in caplog.records] == [
        "the event loop stood still for 0.092 s in actor /test/a at Secret, in load (/app/load.py:12)" + remedy,
        "the event loop stood still for 0.092 s in load (/app/load.py:12)" + remedy,
    ]


async def test_the_place_of_a_stall_is_the_users_innermost_frame() -> None:
    """Frames of the standard library above it are passed over, and none below the loop is taken."""
    places: list[str] = []

    def note(*_: object) -> None:
        places.append(place_in(sys._getframe()))

    def users_code() -> None:
        # `indent` is of the standard library, and calls back.
        textwrap.indent("x", "", as_the_library(note))

    users_code()
    asyncio.get_running_loop().call_soon(as_the_library(note))
    await asyncio.sleep(0)
    assert places == [f"{users_code.__qualname__} ({__file__}:{users_code.__code__.co_firstlineno + 2})", ""]
    assert place_in(None) == ""


def as_the_library(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as if this library had defined it."""
    return FunctionType(function.__code__, {**globals(), "__name__": "actors.loop"}, closure=function.__closure__)


async def test_failures_are_logged_with_traceback_and_decision(actor_kit: TestKit, caplog: pytest.LogCaptureFixture) -> None:
    """A failure is never silent, and never shows the content of the message."""
    ref, _ = await do(actor_kit, supervise=lambda _: Resume())
    adapted: Any = ref.narrow(lambda secret: boom)
    adapted.tell(Secret("hunter2"))
    await actor_kit.quiesce()
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == "actor /test/a failed at function, decision: resume"
    assert record.exc_info
    assert {Path(frame.filename).name for frame in traceback.extract_tb(record.exc_info[2])} == {"helpers.py"}  # none of the package
    assert "hunter2" not in caplog.text


def tell_when_looked(system: System, looked: threading.Event) -> None:
    """Set `looked` when the watch has looked for the actor that holds the loop, whether it found one or not.

    On a slow machine others hold the loop as well, and the watch looks once until the loop turns again: a test holds it again then.
    """
    detector: Any = system._stall
    look = detector._look

    def looking() -> Any:
        found = look()
        looked.set()
        return found

    detector._look = looking


def more_than(stalls: list[Stalled], seen: int) -> bool:
    return len(stalls) > seen


async def test_a_handler_that_holds_the_loop_is_named_with_its_message_and_its_line(caplog: pytest.LogCaptureFixture) -> None:
    """The watch names the actor that holds the loop, while it does, with its stack."""
    stalls: list[Stalled] = []
    looked = threading.Event()

    def hold_the_loop(_: Do) -> None:
        # Held until the watch has looked, however slow this machine is.
        assert looked.wait(30)

    async with System("s", stall_after=0.01) as system:
        tell_when_looked(system, looked)
        system.subscribe(Stalled, stalls.append)
        await system.spawn(Spec(lambda: Do()), "other")
        ref: Any = await system.spawn(Spec(lambda: Do()), "parent")
        await ref.ask(Call, lambda me: me.ctx.spawn(Spec(Silent), "child"))
        (child,) = await ref.ask(Call, lambda me: me.ctx.children)
        while not (held := [stall for stall in stalls if stall.message == hold_the_loop]):
            seen = len(stalls)
            looked.clear()
            child.tell(hold_the_loop)
            await until(partial(more_than, stalls, seen))
    stall = held[0]
    assert stall.path == "/s/parent/child"
    assert stall.seconds >= 0.01
    assert "in hold_the_loop" in stall.stack
    assert stall.place.startswith(f"{hold_the_loop.__qualname__} ({__file__}:")
    assert f"in actor /s/parent/child at function, in {stall.place}" in caplog.text


async def test_a_loop_that_is_held_by_others_is_named_so(caplog: pytest.LogCaptureFixture) -> None:
    """Code outside of any actor is seen as well."""
    here = test_a_loop_that_is_held_by_others_is_named_so.__qualname__
    stalls: list[Stalled] = []
    looked = threading.Event()
    async with System("s", stall_after=0.01) as system:
        tell_when_looked(system, looked)
        system.subscribe(Stalled, stalls.append)
        while not (held := [stall for stall in stalls if stall.place.startswith(f"{here} ({__file__}:")]):
            seen = len(stalls)
            looked.clear()
            looked.wait(30)  # in vain if it has looked just before
            await until(partial(more_than, stalls, seen))
    assert held[0].path == ""
    assert f"stood still for {held[0].seconds:.3f} s in {held[0].place}; work that" in caplog.text


async def test_a_loop_that_waits_for_events_is_hardly_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 looks at a quiet loop one wakes it; that one would find a callback without a frame under uvloop."""
    looks = pings = 0
    enough = asyncio.Event()
    loop, look, ring = asyncio.get_running_loop(), StallDetector._frame, Doorbell.ring

    def looking(detector: StallDetector) -> FrameType | None:
        nonlocal looks
        looks += 1
        if looks == 100:
            loop.call_soon_threadsafe(enough.set)
        return look(detector)

    def ringing(bell: Doorbell, call: Callable[[], object]) -> None:
        nonlocal pings
        pings += 1
        ring(bell, call)

    monkeypatch.setattr(StallDetector, "_frame", looking)
    monkeypatch.setattr(Doorbell, "ring", ringing)
    async with System("s", stall_after=0.001):
        await enough.wait()
    # At each 20th of 106 looks, and once or twice while the loop began or ended.
    assert 5 <= pings <= 10
    # A thread that has ended does not wait either.
    assert not _waits(None)


class Signs(queue.SimpleQueue[bool]):
    """The loop's signs of life, which tell when none has come for two periods."""

    def __init__(self, late: threading.Event) -> None:
        self.late = late
        self.missed = 0

    def get(self, block: bool = True, timeout: float | None = None) -> bool:
        try:
            return super().get(block, timeout)
        except queue.Empty:
            self.missed += 1
            if self.missed == 2:
                self.late.set()
            raise


def wait_in_a_selector(late: threading.Event) -> None:
    """Hold the loop in the standard library's `select`, as `subprocess.run` does."""
    ours, others = socket.socketpair()
    with ours, others, selectors.DefaultSelector() as selector:
        selector.register(ours, selectors.EVENT_READ)
        waker = threading.Thread(target=lambda: (late.wait(30), others.send(b"x")))
        waker.start()
        assert selector.select(30)
        waker.join()


async def test_a_loop_that_is_held_in_a_selector_of_others_is_seen() -> None:
    """Only the loop's own waiting is none of the watch's business; it is reported once, however long it lasts."""
    stalls: list[Stalled] = []
    late = threading.Event()
    async with System("s", stall_after=0.01) as system:
        detector: Any = system._stall
        detector._signs = signs = Signs(late)
        system.subscribe(Stalled, stalls.append)
        while not (held := [stall for stall in stalls if "in wait_in_a_selector" in stall.stack]):
            seen, signs.missed = len(stalls), 0
            late.clear()
            wait_in_a_selector(late)
            await until(partial(more_than, stalls, seen))
    assert held[0].seconds >= 0.02


async def test_events_carry_the_facts_for_a_test(actor_kit: TestKit) -> None:
    """The message that failed and the one that died are in their events."""
    failed: list[Failed] = []
    actor_kit.subscribe(Failed, failed.append)
    ref, _ = await do(actor_kit)
    ref.tell(boom)
    ref.tell("dead")
    await actor_kit.quiesce()
    assert [event.message for event in failed] == [boom]
    assert actor_kit.undelivered == [Undelivered("/test/a", "dead", "stopped")]
    actor_kit.failures.clear()


async def test_the_end_of_a_system_tells_the_number_of_muted_messages(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is lost in silence: the tenth line says that more are counted, and the end says how many."""
    async with System("s", stall_after=None) as system:
        ref = await system.spawn(Spec(Do), "a")
        await system.stop(ref)
        for _ in range(30):
            ref.tell("lost")
    lines = [record.getMessage() for record in caplog.records]
    assert lines[9] == "undelivered: str to /s/a (stopped); more are counted, and not logged for 300 s"
    assert lines[10].startswith("20 more undelivered messages in the last ")
    assert len(lines) == 11


async def test_an_event_that_a_handler_fails_on_is_logged_without_its_message(actor_kit: TestKit, caplog: pytest.LogCaptureFixture) -> None:
    """By its type and the actor's path: a message may hold a secret."""

    def broken(_: Undelivered) -> None:
        raise Boom

    ref, _ = await do(actor_kit)
    await actor_kit.stop(ref)
    actor_kit.subscribe(Undelivered, broken)
    ref.tell(Secret("hunter2"))
    assert "failed on Undelivered of /test/a" in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("event", [Terminated, "Undelivered", int])
async def test_only_events_can_be_subscribed_to(actor_kit: TestKit, event: Any) -> None:
    """A handler of anything else would never be called."""
    with pytest.raises(TypeError, match=r"takes one of the events Undelivered, Failed, .* but got .*ctx\.watch"):
        actor_kit.subscribe(event, print)
