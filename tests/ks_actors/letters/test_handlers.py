"""Exception handlers and dead letters."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ks_actors import TaskId
from ks_actors.config._exception_handlers import DeadLetter, ErrorContext, FailedRecord, HandlerResponse, Response, log_and_continue, log_and_fail


class OwnError(Exception):
    pass


def context(**changes: Any) -> ErrorContext:
    fields: dict[str, Any] = {
        "topic": "input",
        "partition": 2,
        "offset": 7,
        "headers": (("h", b"1"), ("h", None)),
        "processor_node_id": "KSTREAM-MAP-0000000001",
        "task_id": TaskId(0, 2),
        "timestamp": 1_000,
        "source_raw_key": b"key",
        "source_raw_value": b"value",
        "dead_letter_queue_topic": "dead",
    }
    return ErrorContext(**{**fields, **changes})


def raised(error: Exception) -> Exception:
    try:
        raise error
    except type(error) as caught:
        return caught


RECORD = FailedRecord("k", "v", 5)


@pytest.mark.parametrize(
    ("handler", "result", "level", "decided"),
    [
        (log_and_fail, HandlerResponse.FAIL, logging.ERROR, "processing ends"),
        (log_and_continue, HandlerResponse.RESUME, logging.WARNING, "processing goes on without it"),
    ],
)
def test_the_built_in_handlers_log_and_decide(
    handler: Any, result: HandlerResponse, level: int, decided: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With the error, where it was, and the decision; and there is a dead letter only where there is a queue."""
    error = raised(ValueError("no good"))
    assert handler(context(dead_letter_queue_topic=None), RECORD, error) == Response(result)
    (logged,) = caplog.records
    assert (logged.levelno, logged.getMessage()) == (
        level,
        f"a record failed at node KSTREAM-MAP-0000000001, task 0_2, topic input, partition 2, offset 7; {decided}",
    )
    assert logged.exc_info is not None
    assert logged.exc_info[1] is error
    assert [letter.topic for letter in handler(context(), None, error).dead_letter_queue_records] == ["dead"]


@pytest.mark.parametrize(
    ("record", "changes", "said"),
    [
        (RECORD, {}, "a record failed at node n, task 0_2, topic input, partition 2, offset 7"),
        (None, {"topic": None}, "a punctuation failed at node n, task 0_2"),
        (RECORD, {"topic": None}, "a record failed at node n, task 0_2"),
        (FailedRecord(b"k", b"v", 5, (), "input", 2), {}, "a record failed at node n, task 0_2, topic input, partition 2, offset 7"),
        (FailedRecord("k", "v", 5, topic="out"), {}, "a record for topic out failed at node n, task 0_2, topic input, partition 2, offset 7"),
        (
            FailedRecord(b"k", b"v", 5, (), "out", 1),
            {"topic": None, "task_id": TaskId(-1, 1)},
            "a record for topic out, partition 1, failed at node n",
        ),
        (RECORD, {"task_id": TaskId(-1, 0)}, "a record failed at node n, task -1_0, topic input, partition 2, offset 7"),
    ],
)
def test_the_log_names_the_places_that_are_known(
    record: FailedRecord | None, changes: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A record that the log refused has neither a task nor a source; the topic that it is for is named. No place is named twice."""
    log_and_fail(context(processor_node_id="n", **changes), record, raised(ValueError("no good")))
    assert [logged.getMessage() for logged in caplog.records] == [f"{said}; processing ends"]


def test_a_dead_letter_is_the_source_record_with_the_error_in_its_headers() -> None:
    """Behind the headers that it has, by Kafka Streams' names and in its order."""
    (letter,) = context().dead_letters(raised(ValueError("no good")))
    assert letter == DeadLetter("dead", b"key", b"value", 1_000, letter.headers)
    assert letter.headers[:2] == (("h", b"1"), ("h", None))
    told = dict(letter.headers[2:])
    trace = told.pop("__streams.errors.stacktrace")
    assert told == {
        "__streams.errors.exception": b"ValueError",
        "__streams.errors.message": b"no good",
        "__streams.errors.topic": b"input",
        "__streams.errors.partition": b"2",
        "__streams.errors.offset": b"7",
    }
    assert [name.rpartition(".")[2] for name, _ in letter.headers[2:]] == ["exception", "message", "stacktrace", "topic", "partition", "offset"]
    assert trace is not None
    assert trace.startswith(b"ValueError: no good\n  File ")


def test_a_dead_letter_can_be_made_of_anything() -> None:
    """No source record, no valid time, an error that is not built in and describes bytes that are no UTF-8."""
    source = context(topic=None, partition=-1, offset=-1, timestamp=-1, headers=(), source_raw_key=None, source_raw_value=None)
    (letter,) = source.dead_letters(OwnError("\ud800"))
    assert (letter.key, letter.value, letter.timestamp) == (None, None, 0)
    told = dict(letter.headers)
    assert told["__streams.errors.exception"] == f"{__name__}.OwnError".encode()
    assert told["__streams.errors.message"] == b"\\ud800"
    assert (told["__streams.errors.topic"], told["__streams.errors.offset"]) == (None, b"-1")


def test_answers_are_responses_or_become_them() -> None:
    """Anything else is no answer."""
    response = Response(HandlerResponse.FAIL, (DeadLetter("dead", None, None, 0),))
    assert Response.of(response) is response
    assert Response.of(HandlerResponse.RESUME) == Response(HandlerResponse.RESUME)
    with pytest.raises(TypeError, match="this one returned None"):
        Response.of(None)
