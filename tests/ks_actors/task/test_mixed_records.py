"""Output for several partitions of a topic, in columns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ks_actors import StreamsConfig
from ks_actors.dsl import Consumed, Produced, StreamsBuilder
from ks_actors.log import Outgoing, TopicPartition
from ks_actors.metrics import STILL
from ks_actors.records import Batch, Headers, TaskId, Window, Windowed
from ks_actors.serdes import STRING, windowed
from ks_actors.task import TaskParts
from ks_actors.task._output_buffer import Gathered, OutputBuffer
from ks_actors.task._task_runner import TaskRunner
from ks_actors.task.figures import SinksFigures
from ks_actors.testing import AppHarness, TestRecord
from tests.examples_of import examples
from tests.ks_actors.runtime.helpers import in_virtual_time

RECORDS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([(), (("h", b"1"),)])), max_size=12)


@settings(max_examples=examples(50))
@given(st.lists(st.lists(st.tuples(st.booleans(), RECORDS), max_size=4), max_size=4), st.booleans())
def test_records_of_a_partition_keep_their_order_and_headers(tasks: list[list[tuple[bool, list[tuple[int, Headers]]]]], gather: bool) -> None:
    """Whether they come one by one or many at a time, of one task or of several."""
    expected: dict[int, list[tuple[bytes, Headers]]] = {}
    gathered, taken, made = Gathered(), list[Outgoing](), 0
    for writes in tasks:
        output = OutputBuffer()
        mixed = output.mixed("t")
        for together, records in writes:
            keys: list[bytes | None] = [b"%d" % (made + at) for at in range(len(records))]
            made += len(records)
            for key, (number, headers) in zip(keys, records, strict=True):
                assert key is not None
                expected.setdefault(number, []).append((key, headers))
            if together:
                some = [headers for _, headers in records]
                mixed.extend([number for number, _ in records], Batch(keys, keys, [0] * len(keys), some if any(some) else None))
            else:
                for key, (number, headers) in zip(keys, records, strict=True):
                    mixed.append(number, key, key, 0, headers)
        if gather:
            gathered.take(output, SinksFigures({}, {}, STILL), 0)
        else:
            taken += output.take()
        assert output.empty
    found: dict[int, list[tuple[bytes, Headers]]] = {}
    for outgoing in gathered.batches() if gather else taken:
        batch = outgoing.batch
        assert batch.keys == batch.values
        found.setdefault(outgoing.partition.partition, []).extend(zip(batch.keys, batch.headers or [()] * len(batch), strict=True))
    assert found == expected


@pytest.mark.parametrize("sizes", [(3, 200, 3), (200, 3, 200), (1, 1, 1)])
@in_virtual_time
async def test_few_and_many_records_of_a_key_come_in_order(sizes: tuple[int, ...]) -> None:
    """They take different ways to the output of a task."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).to("out", Produced(STRING, STRING))
    async with AppHarness(builder.build(), topics={"in": 1, "out": 8}) as harness:
        sent = 0
        for size in sizes:
            records = [TestRecord(f"k{number % 10}", str(number), 0) for number in range(sent, sent + size)]
            await harness.produce_all("in", records)
            await harness.caught_up()
            sent += size
        values: dict[str, list[int]] = {}
        for record in await harness.read("out"):
            values.setdefault(str(record.key), []).append(int(str(record.value)))
    assert sum(map(len, values.values())) == sent
    assert all(of_key == sorted(of_key) for of_key in values.values())


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("partitions", [1, 2, 8])
def test_records_of_a_partition_keep_their_order_whatever_writes_them(partitions: int, windows: bool) -> None:
    """A few come one by one and many at a time, with windowed keys or by two sinks of which one has a partitioner."""
    builder = StreamsBuilder()
    stream = builder.stream("a", Consumed(STRING, STRING)).merge(builder.stream("b", Consumed(STRING, STRING)))
    if windows:
        keyed = stream.map(lambda key, value: (Windowed(key, Window(0, 10)), value))
        keyed.to("out", Produced(windowed(STRING, 10), STRING))
    else:
        stream.filter(lambda _, value: value == "a").to("out", Produced(STRING, STRING, partitioner=lambda topic, key, value, count: 0))
        stream.filter(lambda _, value: value == "b").to("out", Produced(STRING, STRING))
    config = StreamsConfig(application_id="app", bootstrap_servers="localhost:9092")
    parts = TaskParts.of(builder.build(), config, partitions={"a": 1, "b": 1, "out": partitions}.get)
    times = {"a": [0, 1, 250], "b": [*range(2, 250), *range(251, 400)]}
    runner = TaskRunner(TaskId(0, 0), "0_0", replace(parts, batch_bytes=1 << 20), wait_s=1)
    task = runner.start((), {TopicPartition(topic, 0): 0 for topic in times}, directory=None, shared=None)
    for topic, column in times.items():
        count = len(column)
        batch = Batch([b"k"] * count, [topic.encode()] * count, column, None, range(count))
        task.add(TopicPartition(topic, 0), batch, count, count)
    while task.process(60):
        pass
    gathered = Gathered()
    task.hand_over(gathered, 0)
    found: dict[TopicPartition, list[int]] = {}
    for outgoing in gathered.batches():
        found.setdefault(outgoing.partition, []).extend(outgoing.batch.timestamps)
    assert sum(map(len, found.values())) == 400
    assert all(written == sorted(written) for written in found.values())
