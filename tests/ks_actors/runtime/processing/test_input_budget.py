"""The limit of input in memory, and the partitions that are not fetched meanwhile."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ks_actors.dsl import StreamsBuilder
from ks_actors.log import TopicPartition
from ks_actors.records._batch import Batch, Headers
from ks_actors.runtime.processing._input_budget import InputBudget
from ks_actors.testing import AppHarness, TestRecord
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, feed_all, in_app

PARTITIONS = [TopicPartition("t", number) for number in range(4)]


def batch(count: int, size: int = 0) -> Batch:
    return Batch([b"k" * size] * count, [None] * count, [0] * count, None, range(count))


def merged() -> Topology:
    builder = StreamsBuilder()
    builder.stream("left", STRINGS).merge(builder.stream("right", STRINGS)).to("out", STRINGS_OUT)
    return builder.build()


@given(st.lists(st.tuples(st.sampled_from(PARTITIONS), st.sampled_from(["add", "consume", "forget"]), st.integers(0, 12), st.integers(0, 40))))
def test_the_budget_is_for_waiting_records(steps: list[tuple[TopicPartition, str, int, int]]) -> None:
    """The running sums equal those over all partitions; only partitions with records are stopped, and none when nothing waits."""
    budget = InputBudget(10, 1_000)
    counts = dict.fromkeys(PARTITIONS, 0)
    sizes = dict.fromkeys(PARTITIONS, 0)
    stopped: set[TopicPartition] = set()
    for partition, action, count, size in steps:
        if action == "add":
            counts[partition] += count
            sizes[partition] = size if count else sizes[partition]
            if budget.added(partition, batch(count, size)):
                assert partition not in stopped
                stopped.add(partition)
            waits = sum(counts[each] * (120 + sizes[each]) for each in PARTITIONS)
            assert partition in stopped or counts[partition] <= 10
            assert partition in stopped or not counts[partition] or waits <= 1_000
        elif action == "consume":
            counts[partition] -= min(count, counts[partition])
            stopped -= set(budget.consumed([(partition, counts[partition])]))
        else:
            counts[partition] = 0
            budget.forget([partition])
            stopped.discard(partition)
        assert budget.buffered == sum(counts.values())
        assert abs(budget.estimate - sum(counts[each] * (120 + sizes[each]) for each in PARTITIONS)) < 0.01
        assert all(counts[each] for each in stopped)
    assert stopped == set(budget.consumed([(partition, 0) for partition in PARTITIONS]))


@in_app(merged(), topics={"left": 1, "right": 1, "out": 1}, input_buffer_max_bytes=1_000, max_task_idle_ms=10_000)
async def test_an_empty_partition_is_fetched_with_any_buffers_of_others(harness: AppHarness) -> None:
    """A task that waits for a partition gets it, though another of its partitions has used up input_buffer_max_bytes."""
    await harness.produce_all("left", [TestRecord("k" * 100, "v" * 100, 2 * time) for time in range(500)])
    await harness.kit.clock.advance(1)
    await feed_all(harness, "right", [TestRecord("k" * 100, "v" * 100, 2 * time + 1) for time in range(500)])
    assert [record.timestamp for record in await harness.read("out")] == list(range(1_000))


def test_an_empty_partition_is_fetched_when_its_own_records_were_stopped() -> None:
    """A partition that stood still for the sum is fetched again when none of its records are left, though others' still fill the sum."""
    budget = InputBudget(5_000, 1_000)
    left, right = PARTITIONS[:2]
    assert budget.added(left, batch(9))
    assert budget.added(right, batch(2))
    assert budget.consumed([(right, 1)]) == ()
    assert budget.consumed([(right, 0)]) == (right,)


def test_headers_count_in_the_budget() -> None:
    """Records with many headers stop their partition, though keys and values are empty."""
    headers: list[Headers] = [(("name", b"value"),) * 1_000]
    budget = InputBudget(10, 100_000)
    assert not budget.added(PARTITIONS[0], batch(1))
    assert budget.added(PARTITIONS[1], Batch([None], [None], [0], headers, range(1)))
    assert budget.estimate > 100_000
