"""Pykka: an actor is a thread with a queue. Its cases need no event loop, and run alone."""

from __future__ import annotations

import threading
import time
from time import perf_counter
from typing import TYPE_CHECKING

import pykka

from benchmarks._load import BEHIND, IN_FLIGHT, ITEMS, Player, Stopwatch, micros, nothing_each

if TYPE_CHECKING:
    from collections.abc import Callable


class Sink(pykka.ThreadingActor):
    """Handle messages; the return value is the reply to an ask."""

    def on_receive(self, message: object) -> int:
        """Handle a message."""
        return 1


class LotSink(pykka.ThreadingActor):
    """Handle messages of many items."""

    def on_receive(self, message: tuple[int, ...]) -> None:
        """Handle a message."""
        nothing_each(message)


class Caller(pykka.ThreadingActor):
    """Pass messages to a function."""

    def __init__(self, function: Callable[[int], None]) -> None:
        super().__init__()
        self._function = function

    def on_receive(self, message: int) -> None:
        """Handle a message."""
        self._function(message)


class Gated(pykka.ThreadingActor):
    """Do not start before the gate opens; record the time of the end."""

    def __init__(self, gate: threading.Event, watch: Stopwatch) -> None:
        super().__init__()
        self._gate = gate
        self._watch = watch

    def on_receive(self, message: object) -> None:
        """Handle a message."""
        self._gate.wait()

    def on_stop(self) -> None:
        """Record the time."""
        self._watch.stop()


def tell(messages: int, *, burst: int) -> float:
    """Send bursts, and let the actor's thread run after each.

    The ask at the end is answered when all are handled.
    """
    ref = Sink.start()
    send = ref.tell
    began = perf_counter()
    for _ in range(messages // burst):
        for number in range(burst):
            send(number)
        time.sleep(0)
    ref.ask(None)
    took = micros(began, messages)
    ref.stop()
    return took


def lots(items: int) -> float:
    """Send messages of many items."""
    ref = LotSink.start()
    began = perf_counter()
    for _ in range(items // ITEMS):
        ref.tell(tuple(range(ITEMS)))
        time.sleep(0)
    ref.ask(())
    took = micros(began, items)
    ref.stop()
    return took


def hop(hops: int, *, pairs: int) -> float:
    """Play ping-pong in `pairs` pairs at once."""
    finished = threading.Semaphore(0)
    players = [(Player(finished.release), Player(finished.release)) for _ in range(pairs)]
    refs = []
    for left, right in players:
        near, far = Caller.start(left.play), Caller.start(right.play)
        left.tell, right.tell = far.tell, near.tell
        refs += [near, far]
    began = perf_counter()
    for ref in refs[::2]:
        ref.tell(hops // pairs)
    for _ in range(pairs):
        finished.acquire()
    took = micros(began, hops)
    for ref in refs:
        ref.stop()
    return took


def ask(questions: int) -> float:
    """Ask and wait for the answer, one after the other."""
    ref = Sink.start()
    began = perf_counter()
    for number in range(questions):
        ref.ask(number)
    took = micros(began, questions)
    ref.stop()
    return took


def ask_many(questions: int) -> float:
    """Ask many questions, then wait for the answers."""
    ref = Sink.start()
    began = perf_counter()
    for _ in range(questions // IN_FLIGHT):
        for answer in [ref.ask(number, block=False) for number in range(IN_FLIGHT)]:
            answer.get()
    took = micros(began, questions)
    ref.stop()
    return took


def spawn(actors: int) -> float:
    """Start actors, that is threads."""
    began = perf_counter()
    refs = [Sink.start() for _ in range(actors)]
    took = micros(began, actors)
    for ref in refs:
        ref.stop()
    return took


def stop(actors: int) -> float:
    """Stop actors and wait for their end, one after the other."""
    refs = [Sink.start() for _ in range(actors)]
    began = perf_counter()
    for ref in refs:
        ref.stop()
    return micros(began, actors)


def behind(_times: int) -> float:
    """Stop while many messages are queued: the request is the last of them."""
    gate, watch = threading.Event(), Stopwatch()
    ref = Gated.start(gate, watch)
    for number in range(BEHIND):
        ref.tell(number)
    watch.start()
    gate.set()
    ref.stop()
    return watch.took
