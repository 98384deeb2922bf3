"""Deadlines of drains, and of commits that wait for them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from ks_actors import TaskId
from ks_actors.dsl import StreamsBuilder
from ks_actors.runtime.commit._drains import Drains
from ks_actors.testing import AppHarness, run_app
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT

# The seconds that the call of each topic's record takes.
CALLS = {"first": 3.0, "second": 5.3, "third": 0.0}


def test_a_drain_that_is_over_wakes_nobody_while_a_commit_waits(guarantee: str) -> None:
    """A task has come to rest, and its deadline passes while a commit waits for the log and a later drain goes on: no timer turns the loop."""
    builder = StreamsBuilder()
    for name, seconds in CALLS.items():

        async def call(value: str, *, seconds: float = seconds) -> str:
            await asyncio.sleep(seconds)
            return value

        builder.stream(name, STRINGS).map_values(call).to(f"{name}-out", STRINGS_OUT)

    async def test(harness: AppHarness) -> None:
        harness.kit.clock.timers_at_once = 1_000
        # Left out of the commit after 1 s, the first drains until 6 s at the latest, and is at rest after 3 s.
        await harness.produce("first", b"k", b"1")
        await asyncio.sleep(1.5)
        # Left out of the commit after 2 s, the second drains until 7 s. That commit waits for the third's output.
        await harness.produce("second", b"k", b"2")
        await asyncio.sleep(0.3)
        held = harness.log.hold("send")
        await harness.produce("third", b"k", b"3")
        await asyncio.sleep(7.0)
        held.set()
        await harness.caught_up()
        assert [[record.value for record in await harness.read(f"{name}-out")] for name in CALLS] == [["1"], ["2"], ["3"]]

    run_app(
        test,
        builder.build(),
        topics={f"{name}{end}": 1 for name in CALLS for end in ("", "-out")},
        processing_guarantee=guarantee,
        commit_interval_ms=1_000,
        max_drain_ms=5_000,
        transaction_timeout_ms=60_000,
    )


def test_a_commit_waits_for_its_grace_on_a_clock_that_counts_milliseconds() -> None:
    """A timer that fires a moment early by the clock is set again: otherwise the commit would wait for the calls to their end."""
    wakes: list[tuple[str, float]] = []
    answers: list[None] = []
    task: Any = SimpleNamespace(
        id=TaskId(0, 0),
        drains=True,
        blocking=False,
        drained=False,
        broken=False,
        commit_requested=False,
        draining=SimpleNamespace(since=None, calls=True, slow=False, fed=0.0, retries_at=0.0),
    )
    tasks = {task.id: task}
    committer: Any = None
    drains = Drains(tasks, tasks, (), committer=lambda: committer, wake_in=lambda *wake: wakes.append(wake), longest=60.0, blocked=60.0, interval=1.0)
    drain: Any = SimpleNamespace(calm=False, due_only=False, reply=SimpleNamespace(tell=answers.append))
    drains.begin(drain, 100.0, ())
    assert wakes[0][0] == "grace"
    wakes.clear()
    early = 100.0 + 0.02 - 1e-9
    drains.tick(early)
    assert answers == []
    again = dict(wakes)["grace"]
    drains.tick(early + again + 1e-12)
    assert answers == [None]
