"""A stream joined with tables in runs: results, stores and errors are as if the records had come one by one."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ks_actors import Batch, ErrorContext, FailedRecord, Response, StreamsConfig, serdes
from ks_actors.config._exception_handlers import HandlerResponse
from ks_actors.dsl import Consumed, Joined, Materialized, Produced, StreamsBuilder
from ks_actors.log import TopicPartition
from ks_actors.serdes import Serde
from ks_actors.task.turns import TableTurns
from ks_actors.testing import TopologyTestDriver
from ks_actors.topology import Topology

TAGGED: Serde[str] = serdes.Serde.of(lambda text: text.encode(), lambda data: data.decode())
"""Text whose serde promises nothing: values may be changed in place."""
Row = tuple[bytes | None, bytes | None, int]


def glue(value: str, row: str | None) -> str:
    if value.endswith("!"):
        raise ValueError(f"{value} cannot be joined")
    return f"{value}+{row}"


def joining(topics: tuple[str, ...], *, value: Serde[str], counted: bool) -> Topology:
    """Join the last of the topics with tables of the others."""
    builder = StreamsBuilder()
    stream = builder.stream(topics[-1], Consumed(serdes.STRING, value)).filter(lambda key, _: key != "k3")
    for number, topic in enumerate(topics[:-1]):
        table = builder.table(topic, Consumed(serdes.STRING, value), Materialized(f"t{number}", serdes.STRING, value))
        join = stream.left_join if number else stream.join
        stream = join(table, glue, Joined(serdes.STRING, value, value))
    if counted:
        rows = stream.group_by_key().reduce(lambda one, other: f"{one[-9:]},{other}", Materialized("r", serdes.STRING, value)).to_stream()
        stream = rows.map_values(lambda text: text or "")
    stream.to("out", Produced(serdes.STRING, value))
    return builder.build()


def run(topology: Topology, inputs: dict[str, list[Row]], *, in_runs: bool, cache: int) -> tuple[Any, ...]:
    """Return output, calls of the handler, rows of the tables, drops and positions."""
    told: list[tuple[ErrorContext, FailedRecord | None]] = []

    def handle(context: ErrorContext, record: FailedRecord | None, error: Exception) -> Any:
        told.append((context, record))
        return Response(HandlerResponse.RESUME)

    config = StreamsConfig(application_id="turns", processing_exception_handler=handle, statestore_cache_max_bytes=cache)
    with TopologyTestDriver(topology, config=config) as driver:
        task = driver._task
        assert task is not None
        assert isinstance(task._merged_turns, TableTurns)
        if not in_runs:
            task._merged_turns = None
        for topic, rows in inputs.items():
            keys, values, times = map(list, zip(*rows, strict=True))
            task.add(TopicPartition(topic, 0), Batch(keys, values, times, None, range(len(rows))), len(rows), len(rows))
        while task.process(1.0):
            pass
        while task.can_drain:
            task.drain(1.0)
        out = [
            (written.partition, *record)
            for written in task.take_output()
            for record in zip(written.batch.keys, written.batch.values, written.batch.timestamps, strict=True)
        ]
        stores = [sorted(driver.get_key_value_store(name).all()) for name in (f"t{number}" for number in range(len(inputs) - 1))]
        return out, told, stores, task.dropped, task.positions()


@pytest.mark.parametrize("seed", range(24))
def test_a_run_with_tables_gives_the_results_of_single_records(seed: int) -> None:
    """With any times and keys, before or behind the stream in order: results, rows, calls of handlers, drops, and positions."""
    random = Random(seed)
    topics = random.choice((("a", "b"), ("b", "a"), ("a", "c", "b"), ("a", "b", "c")))
    topology = joining(topics, value=random.choice((serdes.STRING, TAGGED)), counted=random.random() < 0.5)
    keys, odd, cache = random.choice((2, 20, 200)), random.choice((0.0, 0.2)), random.choice((0, 10_000_000))
    inputs: dict[str, list[Row]] = {}
    for topic in topics:
        step, rows, time = random.choice((2, 30)), inputs.setdefault(topic, []), 0
        for number in range(random.randrange(20, 300)):
            time += random.randrange(step)
            key = None if random.random() < odd / 4 else b"k%d" % random.randrange(keys)
            bad = topic == topics[-1] and random.random() < odd / 4
            value = None if random.random() < odd / 2 else b"%b%d%b" % (topic.encode(), number, b"!" if bad else b"")
            rows.append((key, value, max(0, time - (random.randrange(60) if random.random() < odd else 0))))
    assert run(topology, inputs, in_runs=True, cache=cache) == run(topology, inputs, in_runs=False, cache=cache)


@pytest.mark.parametrize(
    "materialized",
    [
        Materialized("t", serdes.STRING, serdes.STRING, history_retention_ms=10),
        Materialized("t", serdes.DOUBLE, serdes.STRING),
    ],
)
def test_tables_whose_rows_depend_on_other_keys_are_not_taken_ahead(materialized: Materialized[Any, str]) -> None:
    """A versioned table forgets versions by the latest time of all keys, and unequal keys of some serdes are one row."""
    key = materialized.key or serdes.STRING
    builder = StreamsBuilder()
    table = builder.table("a", Consumed(key, serdes.STRING), materialized)
    builder.stream("b", Consumed(key, serdes.STRING)).join(table, glue, Joined(key, serdes.STRING, serdes.STRING)).to(
        "out", Produced(key, serdes.STRING)
    )
    with TopologyTestDriver(builder.build(), config=StreamsConfig(application_id="turns")) as driver:
        task = driver._task
        assert task is not None
        assert task._merged_turns is None
