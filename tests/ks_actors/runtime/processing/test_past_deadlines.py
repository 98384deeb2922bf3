"""Deadlines of tasks that pass while the task can do nothing."""

from __future__ import annotations

import asyncio

from ks_actors import Processor, ProcessorContext, PunctuationType, Record
from ks_actors.dsl import StreamsBuilder
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, in_virtual_time

IDLE_MS, CALL_S = 1_000, 8.0


class Once(Processor[str, str, str, str]):
    """Forward a record by the wall clock, once, and each record that comes."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._context = context
        self._stop = context.schedule(200, PunctuationType.WALL_CLOCK_TIME, self._tick)

    def _tick(self, now: int) -> None:
        self._stop()
        self._context.forward(Record("tick", "tick", now))

    def process(self, record: Record[str, str]) -> None:
        self._context.forward(record)


@in_virtual_time
async def test_a_task_whose_calls_leave_no_room_does_not_wake_for_its_inputs() -> None:
    """The wait for an empty input ends while a call that is full goes on: nothing turns the loop until the call has ended."""
    builder = StreamsBuilder()

    async def call(value: str) -> str:
        await asyncio.sleep(CALL_S)
        return value

    both = builder.stream("one", STRINGS).merge(builder.stream("other", STRINGS))
    both.process(Once).map_values(call, max_in_flight=1).to("out", STRINGS_OUT)
    async with AppHarness(builder.build(), topics={"one": 1, "other": 1, "out": 1}, max_task_idle_ms=IDLE_MS, commit_interval_ms=30_000) as harness:
        await harness.produce("one", b"k", b"1")
        await asyncio.sleep(2 * IDLE_MS / 1000)
        steps = harness.kit._dispatch.steps
        await asyncio.sleep(2.0)
        assert harness.kit._dispatch.steps - steps < 400
        await harness.caught_up()
        assert [record.value for record in await harness.read("out")] == ["tick", "1"]
