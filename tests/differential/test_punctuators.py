"""Punctuators on stream time, which are called between records, however many of these come at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors.dsl import Consumed, Produced, StreamsBuilder
from ks_actors.processors import Processor, PunctuationType, Record
from ks_actors.serdes import STRING
from ks_actors.topology import Topology
from tests.differential.cases import run_steps

C, P = Consumed(STRING, STRING), Produced(STRING, STRING)
CONFIG = {"application_id": "app"}
TIMES = list(range(0, 100, 5))


class Told(Processor[str, str, str, str]):
    """Forward each record, and at each call of a punctuator its time and whether it has a record."""

    def schedule(self) -> Callable[[], None]:
        return self.context.schedule(10, PunctuationType.STREAM_TIME, self.tick)

    def tick(self, now: int) -> None:
        self.context.forward(Record("tick", f"{now} {self.context.record_metadata()}", now))

    def process(self, record: Record[str, str]) -> None:
        metadata = self.context.record_metadata()
        assert metadata is not None
        self.context.forward(record.with_value(f"{record.value} {metadata.offset}"))


class FromTheStart(Told):
    """Schedule in `init`."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.schedule()


class AtTheFirstRecord(Told):
    """Schedule when the first record comes."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.begun = False

    def process(self, record: Record[str, str]) -> None:
        if not self.begun:
            self.begun = True
            self.schedule()
        super().process(record)


class WhileNeeded(Told):
    """Schedule while there are records to expire, and cancel when there are none."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.kept: list[int] = []
        self.cancel: Callable[[], None] | None = None

    def tick(self, now: int) -> None:
        super().tick(now)
        self.kept = [time for time in self.kept if time > now - 25]
        if not self.kept and self.cancel is not None:
            self.cancel()
            self.cancel = None

    def process(self, record: Record[str, str]) -> None:
        self.kept.append(record.timestamp)
        if self.cancel is None:
            self.cancel = self.schedule()
        super().process(record)


KINDS = (FromTheStart, AtTheFirstRecord, WhileNeeded)


def alone(kind: type[Told]) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", C).process(kind).to("out", P)
    return builder.build()


def beside(kind: type[Told]) -> Topology:
    """Have a source beside, without processors, in the same task."""
    builder = StreamsBuilder()
    plain = builder.stream("other", C).map_values(str.upper)
    builder.stream("in", C).process(kind).merge(plain).to("out", P)
    return builder.build()


def outputs(topology: Topology, steps: list[dict[str, Any]], *, one_by_one: bool) -> list[tuple[Any, ...]]:
    return run_steps(topology, ("out",), steps, CONFIG, one_by_one=one_by_one)["out"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_punctuator_is_called_after_the_record_that_makes_it_due(kind: type[Told]) -> None:
    """Also one that is scheduled while a record is processed, with the records of one fetch still to come, as in Kafka Streams."""
    steps = [{"topic": "in", "key": "k", "value": "v", "timestamp": time} for time in TIMES]
    expected: list[tuple[Any, ...]] = []
    for offset, time in enumerate(TIMES):
        expected.append((b"k", f"v {offset}".encode(), time))
        if time % 10 == 0:
            expected.append((b"tick", f"{time} None".encode(), time))
    assert outputs(alone(kind), steps, one_by_one=False) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_other_sources_make_a_punctuator_due(kind: type[Told]) -> None:
    """Also those that would be processed in batches: stream time is the task's."""
    steps = [{"topic": "in" if time < 15 else "other", "key": "k", "value": "v", "timestamp": time} for time in TIMES]
    found = outputs(beside(kind), steps, one_by_one=False)
    ticks = [row[2] for row in found if row[0] == b"tick"]
    assert found == outputs(beside(kind), steps, one_by_one=True)
    assert ticks == ([0, 10, 20, 30, 40] if kind is WhileNeeded else list(range(0, 100, 10)))


ROWS = st.lists(
    st.fixed_dictionaries({"topic": st.sampled_from(("in", "other")), "key": st.just("k"), "value": st.just("v"), "timestamp": st.integers(0, 200)}),
    max_size=40,
)


@given(rows=ROWS, kind=st.sampled_from(KINDS), ordered=st.booleans())
def test_calls_do_not_depend_on_how_records_come(rows: list[dict[str, Any]], kind: type[Told], ordered: bool) -> None:
    """All at once or one by one, in the order of time or not, calls come between the same records."""
    steps = sorted(rows, key=lambda row: row["timestamp"]) if ordered else rows
    assert outputs(beside(kind), steps, one_by_one=False) == outputs(beside(kind), steps, one_by_one=True)
