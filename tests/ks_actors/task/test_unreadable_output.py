"""Records that an app could write, and not read again: they reach no topic, its own least of all."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ks_actors import Grouped, Materialized, ProductionFailed
from ks_actors.dsl import Consumed, StreamsBuilder
from ks_actors.serdes import LONG, STRING, UUID, json, msgpack
from ks_actors.testing import AppHarness
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import in_virtual_time


class Reading(msgspec.Struct, frozen=True):
    sensor: str
    value: float


TOPICS = {"in": 1}


def _counts(grouped: Grouped[Any, Any], value: Callable[[str], Any], key: Callable[[Any, Any], Any]) -> Topology:
    """Count the values of texts by a key of them."""
    builder = StreamsBuilder()
    texts = builder.stream("in", Consumed(STRING, STRING)).map_values(value)
    texts.group_by(key, grouped).count(Materialized("counts", grouped.key, LONG))
    return builder.build()


CASES: dict[str, tuple[Topology, str, str]] = {
    "NaN": (_counts(Grouped(STRING, json(Reading), "by"), lambda text: Reading("s", float(text)), lambda _, value: value.sensor), "1", "nan"),
    "another type": (
        _counts(Grouped(STRING, msgpack(Reading), "by"), lambda text: Reading("s", 1.0) if text == "1" else {"sensor": 1}, lambda _, __: "s"),
        "1",
        "x",
    ),
    "no UUID": (
        _counts(Grouped(UUID, STRING, "by"), lambda text: text, lambda _, value: uuid.UUID(int=1) if value == "1" else "x" * 36),
        "1",
        "x",
    ),
}


@pytest.mark.parametrize("case", CASES)
@in_virtual_time
async def test_a_repartition_topic_gets_no_record_that_the_app_cannot_read(case: str) -> None:
    """The record at hand fails, with its place in the source topic."""
    topology, _, bad = CASES[case]
    async with AppHarness(topology, topics=TOPICS) as harness:
        await harness.produce("in", "k", bad)
        error = await harness.ended()
        assert isinstance(error, ProductionFailed)
        assert (error.node, error.topic, error.partition, error.offset) == ("by-repartition-sink", "in", 0, 0)
        assert "topic app-by-repartition cannot be serialized" in str(error)
        assert await harness.read("app-by-repartition") == []


@pytest.mark.parametrize("case", CASES)
@in_virtual_time
async def test_the_production_handler_decides_about_what_could_not_be_read_again(case: str) -> None:
    """With `continue` the record is left out, and all others are counted."""
    topology, good, bad = CASES[case]
    async with AppHarness(topology, topics=TOPICS, production_exception_handler="continue") as harness:
        for text in (good, bad, good):
            await harness.produce("in", "k", text)
        await harness.caught_up()
        assert [count async for _, count in harness.app.store("counts").all()] == [2]
        assert harness.app.metrics()["dropped-records-total"] == 1


@pytest.mark.parametrize("make", [json, msgpack])
@in_virtual_time
async def test_equal_keys_of_a_type_are_counted_in_one_row(make: Callable[[Any], Any]) -> None:
    """1 and 1.0 as a float go to one partition: the count of neither is split."""
    builder = StreamsBuilder()
    texts = builder.stream("in", Consumed(STRING, json()))
    texts.group_by(lambda _, value: Reading("s", value), Grouped(make(Reading), json(), "by")).count(Materialized("counts", make(Reading), LONG))
    async with AppHarness(builder.build(), topics={"in": 4}) as harness:
        for number in range(6):
            for value in (number, float(number)):
                await harness.produce("in", "k", value)
        await harness.caught_up()
        rows = [row async for row in harness.app.store("counts").all()]
        assert {key.value: count for key, count in rows} == {float(number): 2 for number in range(6)}
        assert len(rows) == 6
