"""Find the failed record: run cases in which each output record fails, and check the reported row."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from ks_actors import ErrorContext, FailedRecord, HandlerResponse, Response
from ks_actors.dsl._stream import Stream
from ks_actors.records._batch import Batch
from ks_actors.records._topic_partition import TopicPartition
from ks_actors.serdes import BYTES
from ks_actors.testing import AppHarness, TestRecord, TopologyTestDriver, run_app
from tests.differential.cases import Case, config_of
from tests.differential.generate import SPECS
from tests.differential.topologies import REBUILT

_NUMBER = re.compile(r"\.(\d+);")


class Failure(NamedTuple):
    """The context that the handler was given for a row, and the row."""

    context: ErrorContext
    record: FailedRecord


class Failed(Exception):
    """The error that each row fails by."""


def fail(value: Any) -> Any:
    """Fail at any row."""
    raise Failed(value)


def fail_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each node that writes to an output topic of a graph fail just before."""
    write = Stream.to
    outputs = {topic for rebuilt in REBUILT.values() for topic in rebuilt.outputs}

    def to(self: Any, topic: str, *options: Any) -> None:
        write(self.map_values(fail) if topic in outputs else self, topic, *options)

    monkeypatch.setattr(Stream, "to", to)


def marked(case: Case) -> Case:
    """Return a case with the number of its step in each value, so that derived values name their steps."""
    steps = [{**step, "value": f"{step['value']}.{number};"} if step.get("value") is not None else step for number, step in enumerate(case["steps"])]
    return {**case, "steps": [step for step in steps if "topic" in step]}


def numbers(text: str | bytes | None) -> list[int]:
    """Return the steps with values in a text, in order."""
    return [int(number) for number in _NUMBER.findall(text.decode("latin1") if isinstance(text, bytes) else text or "")]


def taking_note(asked: list[Failure]) -> Callable[[ErrorContext, FailedRecord, Exception], Response]:
    """Return a handler that takes note, and goes on; it writes dead letters if the app has a topic for them."""

    def handler(context: ErrorContext, record: FailedRecord, error: Exception, /) -> Response:
        if not isinstance(error, Failed):
            raise error
        asked.append(Failure(context, record))
        return Response(HandlerResponse.RESUME, context.dead_letters(error))

    return handler


def in_an_app(case: Case, cache: int, guarantee: str) -> tuple[list[Failure], list[TestRecord[bytes, bytes]]]:
    """Run a case in an app with a handler that takes note; return that, and the dead letters that it has written."""
    asked: list[Failure] = []
    letters: list[TestRecord[bytes, bytes]] = []

    async def test(harness: AppHarness) -> None:
        for topic in topics:
            steps = [step for step in case["steps"] if step["topic"] == topic]
            await harness.produce_all(topic, [TestRecord(step["key"], step["value"], step["timestamp"]) for step in steps])
        await harness.start()
        await harness.caught_up()
        letters.extend(await harness.read("letters", key=BYTES, value=BYTES))

    topics = SPECS[case["topology"]].topics
    config = {
        **config_of(case),
        "statestore_cache_max_bytes": cache,
        "processing_guarantee": guarantee,
        "processing_exception_handler": taking_note(asked),
        "errors_dead_letter_queue_topic_name": "letters",
    }
    rebuilt = REBUILT[case["topology"]]
    run_app(test, rebuilt.build(case["params"]), topics=dict.fromkeys([*topics, *rebuilt.outputs, "letters"], 1), start=False, **config)
    return asked, letters


def failures(case: Case, cache: int, *, one_by_one: bool) -> list[Failure]:
    """Run a case without an app, all its records at once, and return the questions to the handler."""
    asked: list[Failure] = []
    config = {**config_of(case), "statestore_cache_max_bytes": cache, "processing_exception_handler": taking_note(asked)}
    with TopologyTestDriver(REBUILT[case["topology"]].build(case["params"]), config=config) as driver:
        task, globals_ = driver._task, driver._globals
        assert task is not None
        for topic in {step["topic"] for step in case["steps"]}:
            steps = [step for step in case["steps"] if step["topic"] == topic]
            keys, values = ([None if step[column] is None else step[column].encode() for step in steps] for column in ("key", "value"))
            batch = Batch(keys, values, [step["timestamp"] for step in steps], None, range(len(steps)))
            partition = TopicPartition(topic, 0)
            reader = task if partition in task.group.queues else globals_
            assert reader is not None
            reader.add(partition, batch, len(steps), len(steps))
        ends: dict[TopicPartition, int] = {}
        for each in (globals_, task):
            while each is not None:
                if not (each.process_one() if one_by_one else each.process(1.0)):
                    if each.drained:
                        break
                    each.drain(1.0)
                for written in each.take_output():
                    batch, first = written.batch, ends.get(written.partition, 0)
                    end = ends[written.partition] = first + len(batch)
                    task.add(written.partition, Batch(batch.keys, batch.values, batch.timestamps, batch.headers, range(first, end)), end, end)
    return asked


def wrong(case: Case, found: Sequence[Failure]) -> list[str]:
    """Find wrong reports about rows: the last record that went into a row is the one that failed.

    The values of joins have those of all their sides behind each other, those of a stream with itself too. A late record makes the sliding window
    right behind it, without being in it.
    """
    sides = 2 if case["topology"] == "ss_self" else len({step["topic"] for step in case["steps"]})
    told = []
    for context, record in found:
        own, of_row = numbers(context.source_raw_value), numbers(record.value if isinstance(record.value, str) else None)
        if own and of_row and not set(own).intersection(of_row[-sides:]) and "diff" not in case["params"]:
            source = f"{context.source_raw_key!r}: {context.source_raw_value!r} of {context.topic}, offset {context.offset}"
            told.append(f"{record.key!r}: {record.value!r} at {record.timestamp} is said to be {source}")
    return told
