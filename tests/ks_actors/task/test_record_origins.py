"""A delayed record names itself when it fails, or no record at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ks_actors import ErrorContext, FailedRecord, HandlerResponse, Response, serdes
from ks_actors.dsl import (
    BufferConfig,
    EmitStrategy,
    Grouped,
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from ks_actors.processors import Processor, Record
from ks_actors.serdes import BYTES
from ks_actors.task import _record_queue
from ks_actors.task.origins import _leaves
from ks_actors.testing import AppHarness, TestRecord, run_app
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, feed

JOINED = StreamJoined(serdes.STRING, serdes.STRING, serdes.STRING)
GROUPED = Grouped(serdes.STRING, serdes.STRING)
Origin = tuple[Any, int, Any]
"""Topic, offset and value of a source record, as an error's context has them."""


def fail(value: Any) -> Any:
    raise ValueError(value)


class Asked:
    """A handler that notes where records came from, and goes on; with their dead letters."""

    def __init__(self) -> None:
        self.origins: list[Origin] = []
        self.records: list[FailedRecord] = []

    def __call__(self, context: ErrorContext, record: FailedRecord, error: Exception, /) -> Response:
        self.origins.append((context.topic, context.offset, context.source_raw_value))
        self.records.append(record)
        return Response(HandlerResponse.RESUME, context.dead_letters(error))


def run(topology: Topology, test: Callable[[AppHarness], Any], **config: Any) -> Asked:
    """Run an app with topics `in`, `other`, `out` and `letters`."""
    asked = Asked()
    topics = dict.fromkeys(["in", "other", "out", "letters"], 1)
    settings = {"errors_dead_letter_queue_topic_name": "letters", "processing_exception_handler": asked}
    run_app(test, topology, topics=topics, **{**settings, **config})
    return asked


def piping(*steps: tuple[str, str, str | None, int]) -> Callable[[AppHarness], Any]:
    """Return a function that writes records of topic, key, value and time one after the other, each when the one before it is processed."""

    async def test(harness: AppHarness) -> None:
        for step in steps:
            await feed(harness, *step)

    return test


def suppressed(builder: StreamsBuilder) -> Any:
    rows = builder.table("in", STRINGS, Materialized("rows", serdes.STRING, serdes.STRING))
    return rows.suppress(Suppressed.until_time_limit(10, BufferConfig.unbounded()))


HELD = (("in", "a", "bad", 0), ("in", "b", "good", 20))


def test_a_suppressed_row_keeps_topic_and_offset_over_a_restart(guarantee: str) -> None:
    """They are in the changelog, as in Kafka Streams; the positions read are known as long as the task is not started anew."""
    builder = StreamsBuilder()
    suppressed(builder).to_stream().map_values(fail).to("out", STRINGS_OUT)

    async def test(harness: AppHarness) -> None:
        await feed(harness, *HELD[0])
        await harness.restart()
        await feed(harness, *HELD[1])
        (letter,) = await harness.read("letters", key=BYTES, value=BYTES)
        told = dict(letter.headers)
        assert (letter.key, letter.value, told["__streams.errors.topic"], told["__streams.errors.offset"]) == (None, None, b"in", b"0")

    assert run(builder.build(), piping(*HELD), processing_guarantee=guarantee).origins == [("in", 0, b"bad")]
    assert run(builder.build(), test, processing_guarantee=guarantee).origins == [("in", 0, None)]


class Seen(Processor[Any, Any, Any, Any]):
    """Note where records came from."""

    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def process(self, record: Record[Any, Any]) -> None:
        metadata = self.context.record_metadata()
        self.seen.append((record.value, metadata if metadata is None else tuple(metadata)))


def test_a_processor_sees_the_source_of_a_held_record() -> None:
    """`record_metadata` is that of the record that was suppressed, and of the current one again behind it."""
    builder = StreamsBuilder()
    seen: list[Any] = []
    suppressed(builder).to_stream().process(lambda: Seen(seen))
    builder.stream("other", STRINGS).process(lambda: Seen(seen))
    run(builder.build(), piping(*HELD, ("other", "a", "x", 30)))
    assert seen == [("bad", ("in", 0, 0)), ("x", ("other", 0, 0))]


@pytest.mark.parametrize("method", ["left_join", "outer_join"])
def test_a_joiner_that_fails_at_a_record_without_a_partner_fails_at_that_one(method: str) -> None:
    """The record that lets it go is joined itself all the same, and the one that failed does not come again."""
    builder = StreamsBuilder()

    def join(left: str, right: str | None) -> str:
        return fail(left) if left == "bad" else f"{left}-{right}"

    windows = JoinWindows.of_time_difference_with_no_grace(5)
    getattr(builder.stream("in", STRINGS), method)(builder.stream("other", STRINGS), join, windows, JOINED).to("out", STRINGS_OUT)
    out: list[Any] = []

    async def test(harness: AppHarness) -> None:
        await piping(("in", "a", "bad", 0), ("in", "b", "good", 20), ("other", "b", "found", 20), ("in", "c", "late", 40))(harness)
        out.extend(record.value for record in await harness.read("out", key=serdes.STRING, value=serdes.STRING))

    asked = run(builder.build(), test)
    assert asked.origins == [("in", 0, b"bad")]
    assert [(record.key, record.value, record.timestamp) for record in asked.records] == [("a", "bad", 0)]
    assert out == ["good-found"]


def test_each_of_the_records_that_wait_at_one_place_fails_as_itself() -> None:
    """Two of one key, side and time: each has its own bytes; one that has met a partner is forgotten."""
    builder = StreamsBuilder()
    windows = JoinWindows.of_time_difference_with_no_grace(5)
    joined = builder.stream("in", STRINGS).left_join(builder.stream("other", STRINGS), lambda left, right: (left, right), windows, JOINED)
    joined.map_values(fail).to("out", STRINGS_OUT)
    steps = [("in", "a", "x", 0), ("in", "a", "y", 0), ("in", "b", "met", 0), ("other", "b", "z", 1), ("in", "c", "c", 20)]
    assert run(builder.build(), piping(*steps)).origins == [("other", 0, b"z"), ("in", 0, b"x"), ("in", 1, b"y")]


CLOSING: dict[str, Callable[[Any], Any]] = {
    "windows": lambda grouped: grouped.windowed_by(TimeWindows.of_size_with_no_grace(5)),
    "sessions": lambda grouped: grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5)),
    "sliding windows": lambda grouped: grouped.windowed_by(SlidingWindows.of_time_difference_with_no_grace(5)),
}


@pytest.mark.parametrize("kind", CLOSING)
def test_a_result_of_a_window_that_closes_names_no_record(kind: str) -> None:
    """The record that closes the window has nothing to do with it, and is not in the dead letter topic."""
    builder = StreamsBuilder()
    windowed = CLOSING[kind](builder.stream("in", STRINGS).group_by_key(GROUPED)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    windowed.count(Materialized("counts", serdes.STRING, serdes.LONG)).to_stream().map_values(fail).to("out", STRINGS_OUT)
    asked = run(builder.build(), piping(("in", "a", "x", 10), ("in", "b", "innocent", 50)))
    assert asked.origins
    assert set(asked.origins) == {(None, -1, None)}


FEW = 4
CACHED: dict[str, Callable[[Any], Any]] = {
    "count": lambda stream: stream.group_by_key(GROUPED).count(Materialized("rows", serdes.STRING, serdes.LONG)),
    "reduce": lambda stream: stream.group_by_key(GROUPED).reduce(lambda _, new: new, Materialized("rows", serdes.STRING, serdes.STRING)),
    "table": lambda stream: stream.to_table(Materialized("rows", serdes.STRING, serdes.STRING)),
    "mutable values": lambda stream: stream.group_by_key(GROUPED).aggregate(list, added, Materialized("rows", serdes.STRING, serdes.json(list))),
}


def added(_: str, value: str, values: list[str]) -> list[str]:
    return [*values, value]


@pytest.mark.parametrize("processor", [False, True])
@pytest.mark.parametrize("most", [_leaves.MOST, FEW])
@pytest.mark.parametrize("kind", CACHED)
def test_a_cached_row_names_the_last_record_that_changed_it(kind: str, most: int, processor: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that came too long ago is unknown, or known without its bytes, but never taken for another one."""
    monkeypatch.setattr(_leaves, "MOST", most)
    monkeypatch.setattr(_record_queue, "_CHUNK", 2)
    builder = StreamsBuilder()
    stream = CACHED[kind](builder.stream("in", STRINGS)).to_stream()
    (stream.process(lambda: Passes()) if processor else stream).map_values(fail).to("out", STRINGS_OUT)

    async def test(harness: AppHarness) -> None:
        await harness.produce_all("in", [TestRecord("bc"[number % 2] if number else "a", f"v{number}", number) for number in range(9)])
        await harness.start()
        await harness.caught_up()

    asked = run(builder.build(), test, start=False, statestore_cache_max_bytes=1 << 20)
    assert [record.key for record in asked.records] == ["a", "c", "b"]
    alone = processor or kind == "mutable values"
    old = ("in", 0, b"v0") if most > FEW else ("in", 0, None) if alone else (None, -1, None)
    assert asked.origins == [old, ("in", 7, b"v7"), ("in", 8, b"v8")]


class Passes(Processor[Any, Any, Any, Any]):
    """Hand records on."""

    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)
