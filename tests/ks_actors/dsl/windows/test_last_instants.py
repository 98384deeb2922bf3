"""Records at the beginning and at the end of time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest

from ks_actors import serdes
from ks_actors.dsl import (
    BufferConfig,
    CalendarWindows,
    EmitStrategy,
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    Stream,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    UnlimitedWindows,
)
from ks_actors.processors.api import Processor, ProcessorContext, PunctuationType, Record
from ks_actors.testing import AppHarness, run_app
from tests.ks_actors.dsl.windows.uneven import Uneven
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT

LAST: Final = 2**63 - 1
START: Final = 1_700_000_000_000
TIMES: Final = (0, 1, 2**31, 2**53, LAST - 10**6, LAST - 999, LAST - 1, LAST)
IDLE: Final = 500
SIZE, GRACE = 1_000, 100

WINDOWS: Final[dict[str, Any]] = {
    "tumbling": TimeWindows.of_size_and_grace(SIZE, GRACE),
    "no grace": TimeWindows.of_size_with_no_grace(SIZE),
    "hopping": TimeWindows.of_size_and_grace(10 * SIZE, GRACE).advance_by(SIZE),
    "sliding": SlidingWindows.of_time_difference_and_grace(SIZE, GRACE),
    "sessions": SessionWindows.of_inactivity_gap_and_grace(SIZE, GRACE),
    "custom": Uneven(3 * SIZE, GRACE),
    "calendar": CalendarWindows("day", "Europe/Berlin", GRACE),
    "long": TimeWindows.of_size_and_grace(2**62, 2**62),
}


def _windowed(stream: Stream[str, str], kind: str) -> Any:
    return stream.group_by_key().windowed_by(WINDOWS[kind])


def closing(kind: str, idle: int | None) -> Callable[[StreamsBuilder], Any]:
    """Return a function that makes windows with final results."""

    def make(builder: StreamsBuilder) -> Any:
        windowed = _windowed(builder.stream("in", STRINGS), kind)
        return windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE, idle_after_ms=idle).count().to_stream()

    return make


def suppressed(kind: str, idle: int | None) -> Callable[[StreamsBuilder], Any]:
    """Return a function that makes windows with suppressed results."""

    def make(builder: StreamsBuilder) -> Any:
        limit = Suppressed.until_window_closes(BufferConfig.unbounded(), idle_after_ms=idle)
        return _windowed(builder.stream("in", STRINGS), kind).count().suppress(limit).to_stream()

    return make


def updating(kind: str) -> Callable[[StreamsBuilder], Any]:
    """Return a function that makes windows with a result per change."""
    return lambda builder: _windowed(builder.stream("in", STRINGS), kind).count().to_stream()


def joined(how: str, windows: Any) -> Callable[[StreamsBuilder], Any]:
    """Return a function that joins two streams."""
    return lambda builder: getattr(builder.stream("in", STRINGS), how)(builder.stream("other", STRINGS), lambda one, other: f"{one}{other}", windows)


class Punctuated(Processor[str, str, str, str]):
    """Forward records, and be called each minute of stream time."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._context = context
        context.schedule(60_000, PunctuationType.STREAM_TIME, lambda _: None)

    def process(self, record: Record[str, str]) -> None:
        self._context.forward(record)


AROUND = JoinWindows.of_time_difference_and_grace(SIZE, GRACE)
OTHERS: Final[dict[str, Callable[[StreamsBuilder], Any]]] = {
    **{f"each {kind}": updating(kind) for kind in WINDOWS},
    "unlimited": lambda builder: builder.stream("in", STRINGS).group_by_key().windowed_by(UnlimitedWindows.of()).count().to_stream(),
    "join": joined("join", AROUND),
    "left join": joined("left_join", AROUND),
    "outer join": joined("outer_join", AROUND),
    "join before": joined("left_join", AROUND.after(0)),
    "join after": joined("outer_join", AROUND.before(0)),
    "long join": joined("outer_join", JoinWindows.of_time_difference_and_grace(2**61, 2**61)),
    "asof": lambda builder: builder.stream("in", STRINGS).left_join_asof(
        builder.stream("other", STRINGS), lambda one, other: f"{one}{other}", SIZE, grace_ms=GRACE
    ),
    "asof, no grace": lambda builder: builder.stream("in", STRINGS).join_asof(
        builder.stream("other", STRINGS), lambda one, other: f"{one}{other}", SIZE
    ),
    "distinct": lambda builder: builder.stream("in", STRINGS).distinct(SIZE),
    "expire": lambda builder: builder.stream("in", STRINGS).expire(SIZE).to_table(Materialized("t", serdes.STRING, serdes.STRING)).to_stream(),
    "expire by the wall clock": lambda builder: (
        builder.stream("in", STRINGS)
        .expire(SIZE, clock=PunctuationType.WALL_CLOCK_TIME)
        .to_table(Materialized("t", serdes.STRING, serdes.STRING))
        .to_stream()
    ),
    "time limit": lambda builder: builder.table("in", STRINGS).suppress(Suppressed.until_time_limit(SIZE, BufferConfig.unbounded())).to_stream(),
    "time limit, idle": lambda builder: (
        builder.table("in", STRINGS).suppress(Suppressed.until_time_limit(SIZE, BufferConfig.unbounded(), idle_after_ms=IDLE)).to_stream()
    ),
    "versioned": lambda builder: builder.stream("other", STRINGS).join(
        builder.table("in", STRINGS, Materialized("v", serdes.STRING, serdes.STRING, history_retention_ms=SIZE)),
        lambda one, other: f"{one}{other}",
    ),
    "punctuated": lambda builder: builder.stream("in", STRINGS).process(Punctuated),
}
CASES: Final = {
    **OTHERS,
    **{f"{kind}, {idle}": closing(kind, idle) for kind in WINDOWS for idle in (None, IDLE)},
    **{f"suppress {kind}, {idle}": suppressed(kind, idle) for kind in WINDOWS for idle in (None, IDLE)},
}


@pytest.mark.parametrize("case", CASES)
def test_no_timestamp_ends_an_app(case: str) -> None:
    """Neither a commit nor a restart fails, and a window has one result at most: by the wall clock, if it ends with time itself."""
    topics = ("other", "in", "other") if any(word in case for word in ("join", "asof", "versioned")) else ("in", "in")
    for time in TIMES:
        builder = StreamsBuilder()
        CASES[case](builder).map(lambda key, value: (str(key), str(value))).to("out", STRINGS_OUT)

        async def test(harness: AppHarness, time: int = time) -> None:
            for key in ("k", "l"):
                for topic in topics:
                    await harness.produce(topic, key, "0", START if key == "l" else time)
                await asyncio.sleep(5)
            await harness.caught_up()
            await harness.app.commit()
            await harness.crash()
            await harness.restart()
            for topic in topics:
                await harness.produce(topic, "k", "1", time)
            await asyncio.sleep(5)
            await harness.caught_up()
            await harness.app.commit()
            assert harness.app.error is None
            if case.endswith((f", {IDLE}", "None")):
                results = Counter(record.key for record in await harness.read("out"))
                assert all(count == 1 for count in results.values()), (time, results)
                closes = time == LAST or not any(kind in case for kind in ("calendar", "long"))
                if closes and case.endswith(f", {IDLE}"):
                    assert results, time
                    if time == LAST:
                        assert harness.app.metrics()["dropped-records-total"] > 0

        run_app(
            test,
            builder.build(),
            topics={"in": 1, "other": 1, "out": 1},
            wall_clock_ms=START,
            commit_interval_ms=100,
            max_task_idle_ms=50,
            processing_guarantee="exactly_once_v2",
            default_key_serde=serdes.STRING,
            default_value_serde=serdes.STRING,
        )
