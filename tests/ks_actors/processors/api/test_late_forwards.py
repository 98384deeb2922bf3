"""Processors that forward when their call is over: nothing would commit the record, so it is refused."""

from __future__ import annotations

from contextvars import Context, copy_context
from typing import Any

import pytest

from ks_actors import Processor, PunctuationType, Record, StreamsError, Topology, serdes
from ks_actors.dsl import Consumed, Materialized, Produced, StreamsBuilder
from ks_actors.testing import AppHarness, TestRecord, TopologyTestDriver
from tests.ks_actors.runtime.helpers import feed_all, in_app

TEXT = Consumed(serdes.STRING, serdes.STRING)


class Late(Processor[str, str, str, str]):
    """Forward within each kind of call, and keep the context for later."""

    made: Late

    def init(self, context: Any) -> None:
        # Without a call of the base's.
        Late.made = self
        context.schedule(1_000, PunctuationType.WALL_CLOCK_TIME, lambda now: context.forward(Record("timer", "t", now)))

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


class LateAsync(Processor[str, str, str, str]):
    """Keep the variables of a call, as a task does that the call begins."""

    kept: Context
    made: LateAsync

    async def process(self, record: Record[str, str]) -> None:
        LateAsync.made, LateAsync.kept = self, copy_context()
        self.context.forward(record)


def _topology(supplier: type[Processor[str, str, str, str]]) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).process(supplier).to("out", Produced(serdes.STRING, serdes.STRING))
    return builder.build()


def test_a_plain_processor_forwards_while_it_is_called() -> None:
    """In `process` and in punctuators; afterwards it is refused, as the offset may have been committed."""
    with TopologyTestDriver(_topology(Late)) as driver:
        driver.create_input_topic("in", serdes.STRING, serdes.STRING).pipe_input("k", "v", 0)
        driver.advance_wall_clock_time(1_000)
        out = driver.create_output_topic("out", serdes.STRING, serdes.STRING)
        assert [value for _, value in out.read_key_values_to_list()] == ["v", "t"]
        with pytest.raises(StreamsError, match="forward was called after process had returned, at node"):
            Late.made.context.forward(Record("k", "late", 0))
        assert out.is_empty


@in_app(_topology(LateAsync), topics={"in": 1, "out": 1})
async def test_an_asynchronous_call_forwards_until_it_returns(harness: AppHarness) -> None:
    """A callback or a task that it has begun is too late after that."""
    await feed_all(harness, "in", [TestRecord("k", "v", 0)])
    for refused in (LateAsync.kept.run, lambda forward, record: forward(record)):
        with pytest.raises(StreamsError, match="await the work in an 'async def process'"):
            refused(LateAsync.made.context.forward, Record("k", "late", 0))
    assert [record.value for record in await harness.read("out")] == ["v"]


def test_dropped_records_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """With the node and the place of the first one: an app whose records lack keys would give nothing, in silence."""
    builder = StreamsBuilder()
    builder.stream("in", TEXT).group_by_key().count(Materialized("counts"))
    with TopologyTestDriver(builder.build()) as driver:
        topic: Any = driver.create_input_topic("in", serdes.STRING, serdes.STRING)
        topic.pipe_input("k", "v", 0)
        assert caplog.records == []
        for _ in range(3):
            topic.pipe_input(None, "v", 0)
        (first,) = [record.getMessage() for record in caplog.records]
        assert "node KSTREAM-AGGREGATE-0000000001 of task 0_0 has dropped a record of in-0, at offset 1 or later" in first
        driver.advance_wall_clock_time(60_000)
        topic.pipe_input(None, "v", 0)
        topic.pipe_input(None, "v", 0)
        assert len(caplog.records) == 2
        assert driver.metrics()["dropped-records-total"] == 5
