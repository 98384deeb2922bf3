"""The shared state of one system's actors. There is one per system and no globals."""

from __future__ import annotations

import asyncio
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING

from actors.loop import Deadlines, Doorbell

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from random import Random

    from actors.events import EventStream
    from actors.loop import Clock, Dispatch, Tasks


class SystemCore:
    """The loop, clock, dispatch and events of one system."""

    __slots__ = (
        "ask_timeout",
        "clock",
        "deadlines",
        "dispatch",
        "doorbell",
        "escalate",
        "events",
        "executor",
        "jobs",
        "loop",
        "random",
        "tasks",
        "thread",
    )

    def __init__(
        self,
        *,
        tasks: Tasks,
        clock: Clock,
        dispatch: Dispatch,
        events: EventStream,
        random: Random,
        ask_timeout: float,
        executor: Callable[[], Executor],
        escalate: Callable[[Exception], None],
    ) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.thread: int = get_ident()
        self.tasks: Tasks = tasks
        self.clock: Clock = clock
        self.dispatch: Dispatch = dispatch
        self.events: EventStream = events
        self.random: Random = random
        self.ask_timeout: float = ask_timeout
        self.executor: Callable[[], Executor] = executor
        self.escalate: Callable[[Exception], None] = escalate
        self.jobs: int = 0
        self.doorbell: Doorbell = Doorbell(self.loop)
        self.deadlines: Deadlines = Deadlines(clock)

    def publish(self, event: object) -> None:
        """Publish on the event stream, on the loop's thread from any thread."""
        if get_ident() == self.thread:
            self.events.publish(event)
        else:
            self.doorbell.ring(partial(self.events.publish, event))
