"""Records that stay bytes on their way into a task and out of it: they are those that columns would be."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ks_actors import StreamsConfig
from ks_actors.config._exception_handlers import log_and_continue
from ks_actors.dsl import Consumed, Produced, StreamsBuilder
from ks_actors.kernel import HAS_KERNEL, kernel
from ks_actors.log import TopicPartition
from ks_actors.records import Batch, EncodedBatch, FetchedBatch, Headers, Run, TaskId
from ks_actors.serdes import LONG, STRING, json
from ks_actors.task import Gathered, TaskParts
from ks_actors.task._task_runner import TaskRunner

COUNT, LIMIT = 400, 20_000
INPUT = TopicPartition("in", 0)
ODD = {
    "texts": (b"w1 w2 w1", b"k"),
    "another width": ("ü w€1 \U00010000".encode(), "ü".encode()),
    "no key": (b"w1 -", b"k"),
    "no value": (None, b"k"),
    "no UTF-8": (b"\xff", b"k"),
    "no UTF-8 comes of it": (b"bad w", b"k"),
    "much of it": (b"w " + b"x" * 2_000, b"k"),
    "other key": (b"w", b"\xff"),
}
FORMS: dict[str, Any] = {"STRING": (STRING, lambda word: word), "LONG": (LONG, len), "json": (json(), lambda word: {"is": word})}


def records(odd: tuple[bytes | None, bytes], at: int, *, headers: bool) -> Batch:
    values: list[bytes | None] = [b"word%d of line %d" % (number % 50, number) for number in range(COUNT)]
    keys = [b"k%d" % (number % 7) for number in range(COUNT)]
    values[at], keys[at] = odd
    times = [1_000 + number // 3 * (-1) ** number for number in range(COUNT)]
    told: list[Headers] = [(("h", b"v"),) if headers and number % 5 == 0 else () for number in range(COUNT)]
    return Batch(keys, values, times, told if headers else None, range(10, 10 + COUNT))


def fetched(batch: Batch) -> Batch:
    """Return the records as they come from Kafka, of two record batches."""
    runs = []
    for part in (batch.slice(0, 150), batch.slice(150, COUNT)):
        raw, count, first, _ = kernel.write_records(part.keys, part.values, part.timestamps, None, 0, 1 << 20, 0)
        runs.append(Run(bytes(raw), 0, len(raw), count, first, append_time=False))
    return FetchedBatch(runs, batch.offsets)


def outcome(form: str, batch: Batch, partitions: int, batch_bytes: int) -> tuple[dict[Any, list[Any]], set[type], tuple[int, int, int]]:
    """Return the records by partition, the kinds of batches, and the task's figures."""
    serde, value_of = FORMS[form]

    def words(_: Any, line: str) -> list[tuple[Any, Any]]:
        found = (line or "").split()
        return [(None if word == "-" else "\ud800" if word == "bad" else word, value_of(word)) for word in found]

    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).flat_map(words).to("out", Produced(STRING, serde))
    config = StreamsConfig(
        application_id="app",
        bootstrap_servers="localhost:9092",
        deserialization_exception_handler=log_and_continue,
        production_exception_handler=log_and_continue,
    )
    parts = TaskParts.of(builder.build(), config, partitions={"in": 1, "out": partitions}.get)
    runner = TaskRunner(TaskId(0, 0), "0_0", replace(parts, batch_bytes=batch_bytes), wait_s=1)
    task = runner.start((), {INPUT: 10}, directory=None, shared=None)
    task.add(INPUT, batch, 10 + COUNT, 10 + COUNT)
    found: dict[Any, list[Any]] = {}
    kinds: set[type] = set()
    while task.process(60):
        gathered = Gathered()
        task.hand_over(gathered, 5_000)
        output = gathered.batches()
        kinds |= {type(outgoing.batch) for outgoing in output}
        for outgoing in output:
            one = outgoing.batch
            told = one.headers or [()] * len(one)
            found.setdefault(outgoing.partition, []).extend(zip(one.keys, one.values, one.timestamps, told, strict=True))
    figures = task.sinks.topics["out"]
    place = task.group.queues[INPUT].position
    return found, kinds, (task.dropped, figures.records, place)


@pytest.mark.skipif(not HAS_KERNEL, reason="there is no kernel")
@pytest.mark.parametrize(("odd", "form"), [*((odd, "STRING") for odd in ODD), ("texts", "LONG"), ("no key", "json"), ("other key", "json")])
def test_records_that_stay_bytes_are_those_that_columns_are(odd: str, form: str) -> None:
    """In each partition and in order, whatever one of them has; the handlers are asked about the same ones."""
    for partitions, headers in ((3, False), (1, False), (3, True)):
        batch = records(ODD[odd], 221, headers=headers)
        expected, plain, figures = outcome(form, batch, partitions, 0)
        found, kinds, measured = outcome(form, batch if headers else fetched(batch), partitions, LIMIT)
        assert found == expected
        assert measured == figures
        assert (plain, EncodedBatch in kinds) == ({Batch}, not headers)


@pytest.mark.skipif(not HAS_KERNEL, reason="there is no kernel")
def test_a_fetched_batch_is_like_others() -> None:
    """Whole and in parts; texts are made of keys, of values, or of both, and bytes are there when they are looked for."""
    plain = Batch([b"a", None, b"c"], [b"a", b"x", None], [5, 5, 1 << 40])
    raw, count, first, _ = kernel.write_records(plain.keys, plain.values, plain.timestamps, None, 0, LIMIT, 0)
    run = Run(memoryview(bytes(raw)), 0, len(raw), count, first, append_time=False)
    batch = FetchedBatch([run, run], range(7, 13))
    assert (len(batch), batch.own_bytes, list(batch.offsets), batch.headers) == (6, 2 * len(raw), [*range(7, 13)], None)
    assert (batch.keys, batch.values, batch.timestamps) == (plain.keys * 2, plain.values * 2, plain.timestamps * 2)
    for texts in range(4):
        keys, values, times = batch.slice(1, 6).read(texts)
        assert keys == [each.decode() if each is not None and texts & 1 else each for each in batch.keys[1:]]
        assert values == [each.decode() if each is not None and texts & 2 else each for each in batch.values[1:]]
        assert times == batch.timestamps[1:]
    assert [len(batch.slice(start, start + 2)) for start in range(7)] == [2, 2, 2, 2, 2, 1, 0]
    assert [batch.slice(start, start + 1).own_bytes for start in range(3)] == [9, 8, 13]
    assert FetchedBatch([run._replace(append_time=True, time=3)], range(3)).timestamps == [3, 3, 3]
    assert batch.write(2, LIMIT, 9) == kernel.write_records(batch.keys, batch.values, batch.timestamps, None, 2, LIMIT, 9)
