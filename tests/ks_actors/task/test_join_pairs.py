"""Joins of two streams in runs of both: output and errors are as if the records had come one by one."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ks_actors import Batch, ErrorContext, FailedRecord, ProcessingFailed, Response, StreamsConfig, serdes
from ks_actors.config._exception_handlers import HandlerResponse
from ks_actors.dsl import Consumed, JoinWindows, Produced, StreamJoined, StreamsBuilder
from ks_actors.log import TopicPartition
from ks_actors.serdes import Serde
from ks_actors.task import _merged_run
from ks_actors.testing import TopologyTestDriver
from ks_actors.topology import Topology

pytestmark = pytest.mark.unmeasured

Row = tuple[str | None, str | None, int, tuple[tuple[str, bytes | None], ...]]
TAGGED: Serde[str] = serdes.Serde.of(lambda text: text.encode(), lambda data: data.decode())
"""Text whose serde promises nothing: keys are told apart by their bytes, values may be changed in place."""


def joining(windows: JoinWindows, *, key: Serde[Any], value: Serde[Any], store_type: Any, keyed: bool, sink: Serde[Any]) -> Topology:
    def glue(left: str, right: str) -> str:
        if left.endswith("!"):
            raise ValueError(f"{left} cannot be joined")
        return f"{left}+{right}"

    def keyed_glue(key: str, left: str, right: str) -> str:
        return f"{key}:{glue(left, right)}"

    builder = StreamsBuilder()
    consumed = Consumed(key, value)
    options = StreamJoined(key, value, value, name="j", store_name="j", store_type=store_type)
    joined = builder.stream("left", consumed).join(builder.stream("right", consumed), keyed_glue if keyed else glue, windows, options)
    joined.to("out", Produced(key, sink))
    return builder.build()


class Run:
    """The results for the records of both topics when they are all there at once."""

    def __init__(self, topology: Topology, inputs: dict[str, list[Row]], *, paired: bool, handler: Callable[..., Any]) -> None:
        self.told: list[tuple[ErrorContext, FailedRecord | None]] = []
        self.out: list[tuple[Any, ...]] = []
        self.letters: list[tuple[Any, ...]] = []
        self.runs = 0

        def handle(context: ErrorContext, record: FailedRecord | None, error: Exception) -> Any:
            self.told.append((context, record))
            return handler(context, error)

        config = StreamsConfig(
            application_id="pairs",
            processing_exception_handler=handle,
            production_exception_handler=handle,
            errors_dead_letter_queue_topic_name="dead",
        )
        with TopologyTestDriver(topology, config=config) as driver:
            task = driver._task
            assert task is not None
            assert task._merged_turns is not None
            if not paired:
                task._merged_turns = None
            for topic, rows in inputs.items():
                headers = [row[3] for row in rows] if any(row[3] for row in rows) else None
                keys, values = ([None if row[at] is None else str(row[at]).encode() for row in rows] for at in (0, 1))
                batch = Batch(keys, values, [row[2] for row in rows], headers, range(5, 5 + len(rows)))
                task.add(TopicPartition(topic, 0), batch, 5 + len(rows), 5 + len(rows))
            self.failure: tuple[Any, ...] | None = None
            try:
                while task.process(1.0):
                    pass
            except ProcessingFailed as error:
                self.failure = (str(error), error.topic, error.offset)
            else:
                self.positions = task.positions()
            for written in task.take_output():
                batch = written.batch
                found: list[tuple[Any, ...]] = list(zip(batch.keys, batch.values, batch.timestamps, batch.headers or [()] * len(batch), strict=True))
                if written.partition.topic == "dead":  # the traceback tells who has called
                    self.letters += [(*row[:3], [header for header in row[3] if not header[0].endswith("stacktrace")]) for row in found]
                else:
                    self.out += found
            self.dropped, self.stream_time = task.dropped, task.stream_time


def rows_of(random: Random, side: str, *, keys: int, step: int, odd: float, headers: bool) -> list[Row]:
    time = random.randrange(20)
    rows: list[Row] = []
    for number in range(random.randrange(120)):
        time += random.randrange(step)
        late = random.randrange(60) if random.random() < odd else 0
        key = None if random.random() < odd / 4 else f"k{random.randrange(keys)}"
        value = None if random.random() < odd / 4 else f"{side}{number}" + ("!" if random.random() < odd / 4 else "")
        own = ((("n", str(number).encode()),) if random.random() < 0.5 else ()) if headers else ()
        rows.append((key, value, max(0, time - late), own))
    return rows


def resume(context: ErrorContext, error: Exception) -> Response:
    return Response(HandlerResponse.RESUME, context.dead_letters(error))


@pytest.mark.parametrize("seed", range(120))
def test_runs_of_both_streams_give_the_results_of_single_records(seed: int) -> None:
    """With any windows, keys, times, errors and headers: results, dead letters, calls of handlers, drops, and positions."""
    random = Random(seed)
    before, after = random.randrange(40), random.randrange(40)
    windows = JoinWindows.of_time_difference_and_grace(before, random.randrange(50)).after(random.choice((after, -random.randrange(before + 1))))
    topology = joining(
        windows,
        key=random.choice((serdes.STRING, TAGGED)),
        value=random.choice((serdes.STRING, TAGGED)),
        store_type=random.choice(("rocksdb", "in_memory")),
        keyed=random.random() < 0.5,
        sink=random.choice((serdes.STRING, serdes.Serde.of(_picky, bytes.decode))),
    )
    keys, step, odd = random.choice((1, 4, 40)), random.choice((2, 4, 12)), random.choice((0.0, 0.0, 0.2))
    options: dict[str, Any] = {"keys": keys, "step": step, "odd": odd, "headers": random.random() < 0.3}
    inputs = {side: rows_of(random, side[0].upper(), **options) for side in ("left", "right")}
    paired, single = (Run(topology, inputs, paired=paired, handler=resume) for paired in (True, False))
    for what in ("out", "letters", "told", "failure", "dropped", "stream_time", "positions"):
        assert getattr(paired, what) == getattr(single, what), what


def _picky(text: str) -> bytes:
    if "7" in text:
        raise ValueError("no sevens")
    return text.encode()


def test_a_run_that_ends_the_task_names_the_record() -> None:
    """The source record is told by its own topic and offset, though records of both topics are in one run."""
    topology = joining(
        JoinWindows.of_time_difference_with_no_grace(10), key=serdes.STRING, value=serdes.STRING, store_type=None, keyed=False, sink=serdes.STRING
    )
    inputs: dict[str, list[Row]] = {
        "left": [("a", "L0", 0, ()), ("b", "L1!", 3, ()), ("c", "L2", 9, ())],
        "right": [("x", "R0", 1, ()), ("y", "R1", 2, ()), ("b", "R2", 4, ()), ("c", "R3", 10, ())],
    }
    runs = [Run(topology, inputs, paired=paired, handler=lambda *_: HandlerResponse.FAIL) for paired in (True, False)]
    assert runs[0].failure == runs[1].failure
    assert runs[0].failure is not None
    assert runs[0].failure[1:] == ("right", 7)


@pytest.mark.parametrize("gap", [0, 1, 50])
def test_most_of_a_join_is_done_in_runs(gap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that are in time, with key and value, are not taken one by one, however far apart they are."""
    singles = []
    one_by_one = _merged_run.MergedTurns._one_by_one

    def counted(turns: Any, weave: Any) -> None:
        singles.append(len(weave.order))
        one_by_one(turns, weave)

    monkeypatch.setattr(_merged_run.MergedTurns, "_one_by_one", counted)
    windows = JoinWindows.of_time_difference_and_grace(100, 100)
    topology = joining(windows, key=serdes.STRING, value=serdes.STRING, store_type=None, keyed=False, sink=serdes.STRING)
    inputs: dict[str, list[Row]] = {side: [(f"k{number % 297}", side, number * gap, ()) for number in range(5000)] for side in ("left", "right")}
    run = Run(topology, inputs, paired=True, handler=resume)
    assert len(run.out) >= 5000
    assert singles == []
