"""The number of records that a task takes at a time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ks_actors import StreamsBuilder, blocking
from ks_actors.records import Batch
from ks_actors.task.times import RunLength
from ks_actors.testing import TopologyTestDriver
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT

FAST_S, SLOW_S, SLICE_S = 1e-6, 6.0, 0.005
COUNT = 3_000


def test_a_task_whose_functions_may_block_takes_one_record_at_a_time() -> None:
    """One, however fast its calls were: the next one may take seconds, and the slice ends behind it."""
    run = RunLength(blocking=True)
    assert run.records == 1
    for _ in range(20):
        run.adapt(run.records, 0.00001)
    assert run.records == 1


def test_a_run_takes_about_a_millisecond() -> None:
    """It grows while it takes less; when records become slow, the next one has only as many as fit.

    One run of some ms tells nothing: another process may have had the processor. Two in a row do.
    """
    run = RunLength()
    for _ in range(10):
        run.adapt(run.records, 0.000001 * run.records)
    assert run.records == 1_000
    run.adapt(1_000, 5.0)
    assert run.records == 1
    run.adapt(1, 0.0015)
    assert run.records == 1
    run.adapt(1, 0.0001)
    assert run.records == 2
    run.adapt(2, 0.003)
    assert run.records == 2
    run.adapt(2, 0.003)
    assert run.records == 1


@pytest.mark.parametrize("burst", [(90, 1), (40, 1, 1)])
def test_a_short_rest_of_a_burst_does_not_forgive_a_long_run(burst: tuple[int, ...]) -> None:
    """A run that the queue cuts short tells nothing: runs of slow records settle at a millisecond or two all the same."""
    run = RunLength()
    longest = 0.0
    for turn in range(60):
        for left in burst:
            rest = left
            while rest:
                done = min(rest, run.records)
                run.adapt(done, 0.0002 * done)
                rest -= done
                longest = max(longest, 0.0002 * done * (turn > 30))
    assert longest <= 0.002


@pytest.mark.parametrize("fast", [0, 1, 2_500])
def test_a_slice_has_one_slow_call_of_a_blocking_function(fast: int) -> None:
    """It ends behind it, however fast those before were: a commit of the task waits for no more."""
    now, calls, slow = 0.0, 0, 0

    @blocking
    def call(value: Any) -> Any:
        nonlocal now, calls, slow
        calls += 1
        slow += calls > fast
        now += FAST_S if calls <= fast else SLOW_S
        return value

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(call).to("out", STRINGS_OUT)
    with TopologyTestDriver(builder.build()) as driver:
        task = driver._task
        assert task is not None
        task._clocks = msgspec.structs.replace(task._clocks, work_time=lambda: now)
        (partition,) = task.group.queues
        offsets = range(COUNT)
        task.add(partition, Batch([b"k"] * COUNT, [b"v"] * COUNT, list(offsets), None, offsets), COUNT, COUNT)
        while task.group.buffered:
            before = slow
            assert task.process(SLICE_S) > 0
            assert slow - before <= 1
    assert calls == COUNT
