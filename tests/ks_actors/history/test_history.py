"""The history of an instance: its bounds, and its cost."""

from __future__ import annotations

import sys
import tracemalloc
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest

from ks_actors import LogTimeout, StreamsBuilder, TaskId
from ks_actors.dsl import Consumed, Produced
from ks_actors.history import CommitClock, Done, History
from ks_actors.serdes import STRING
from ks_actors.testing import TopologyTestDriver


def fresh() -> tuple[History, list[int]]:
    """Return a history, and the time of its clock in ms."""
    history, now = History(), [0]
    history.wall_time = lambda: now[0]
    return history, now


def note(history: History, node: str, error: Exception, *, shown: bool = False) -> None:
    history.exceptions.note_at(
        error, kind="processing", done=Done.SKIPPED, task=TaskId(0, 1), node=node, topic="in", partition=1, offset=5, shown=shown
    )


def test_the_last_200_different_exceptions_are_kept_the_newest_first() -> None:
    """One that comes again goes to the front with its number; the oldest is forgotten, not the one that is repeated."""
    history, now = fresh()
    for number in range(200):
        now[0] = number
        note(history, f"node-{number}", ValueError("secret"))
    note(history, "node-0", ValueError("again"))
    note(history, "another", ValueError())
    found = history.exceptions.latest()
    assert len(found) == 200
    assert [(one.node, one.count) for one in found[:3]] == [("another", 1), ("node-0", 2), ("node-199", 1)]
    assert (found[1].first_ms, found[1].last_ms, found[-1].node) == (0, 199, "node-2")
    assert {one.text for one in found} == {None}


def test_a_text_that_is_shown_is_cut_and_has_no_login() -> None:
    """A text of the log may quote an address; others are shown only where their caller allows it."""
    history, _ = fresh()
    history.exceptions.note(LogTimeout(f"kafka://user:password@broker {'x' * 1_000}"), kind="commit", done=Done.RETRIED)
    history.exceptions.note(ValueError("a value"), kind="app", done=Done.ENDED)
    ended, retried = history.exceptions.latest()
    assert ended.text is None
    assert retried.text is not None
    assert "password" not in retried.text
    assert len(retried.text) == 300


def test_the_slowest_commits_are_those_of_the_last_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of each minute, at most 10; the last 200 commits are kept, whatever they took."""
    history, now = fresh()
    work = [0.0]
    monkeypatch.setattr("ks_actors.history._commits.perf_counter", lambda: work[0])

    def commit(minute: int, seconds: int) -> None:
        now[0] = minute * 60_000
        clock = CommitClock("test")
        work[0] += seconds
        clock.end("flush")
        history.commits.note(clock, processed=minute, tasks=1, left_out=0)

    commit(0, 500)
    for minute in range(1, 121):
        commit(minute, minute)
        commit(minute, 200 - minute)
    found = history.commits.slowest()
    assert [one.took_ms for one in found] == [1_000.0 * seconds for seconds in (139, 138, 137, 136, 135, 134, 133, 132, 131, 130)]
    assert found[0].phases == {"flush": 139_000.0}
    assert len(history.commits.latest()) == 200
    assert [one.processed for one in history.commits.latest()[:3]] == [0, 1, 0]


def test_a_failed_commit_says_where_it_failed_and_its_records_count_for_the_next_one() -> None:
    """It has the type of its error, never its text, nor that of its reason."""
    history, _ = fresh()
    for error, processed in ((LogTimeout("secret"), 5), (None, 8), (None, 9)):
        clock = CommitClock("output failed: secret")
        clock.end("drain")
        history.commits.note(clock, processed=processed, tasks=1, left_out=0, error=error)
    newest, second, failed = history.commits.latest()
    assert (failed.error, list(failed.phases), failed.reason) == ("LogTimeout", ["drain", "failed"], "output failed")
    assert (second.error, second.processed, newest.processed) == (None, 8, 1)


def calls(function: Callable[[], object]) -> int:
    """Return the number of calls that a function makes, in Python and in C."""
    count = 0

    def call(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(call)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@dataclass
class Odd:
    """An object that cannot be shown."""

    lacks: int = field(init=False)


class Order(msgspec.Struct):
    rows: Any


@dataclass
class Address:
    city: str
    secret: str = field(default="secret", repr=False)


class Place(NamedTuple):
    x: int


class Login:
    def __repr__(self) -> str:
        raise AssertionError("this text may have any length")


class Hidden(dict[str, str]):
    """A container with a text of its own."""

    __repr__ = Login.__repr__


class Model(pydantic.BaseModel):
    name: str
    secret: str = pydantic.Field(default="secret", repr=False)


def wide(value: Any) -> Any:
    for _ in range(6):
        value = [value] * 30
    return value


@pytest.mark.parametrize(
    "value",
    [
        Order([f"{number}" * 1_000 for number in range(1_000)]),
        Order(dict.fromkeys(range(100_000), Place(1))),
        OrderedDict.fromkeys(range(100_000)),
        set(range(100_000)),
        bytearray(5_000_000),
        Order(wide("x")),
        wide([]),
        wide(Order(())),
    ],
)
def test_a_sample_takes_no_more_memory_than_its_text(value: object) -> None:
    """The size, the width and the depth of the value do not matter."""
    history, _ = fresh()
    edge = history.samples.edge("a", "b")
    history.samples.take(edge, None, None, 0)  # its imports and caches are there
    tracemalloc.start()
    history.samples.take(edge, None, value, 0)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100_000
    assert 10 < len(edge.records[-1].value) <= 501


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Order([Address("Rome"), Place(1), Model(name="n")]), "Order(rows=[Address(city='Rome'), Place(x=1), Model(name='n')])"),
        (Counter(a=2), "{'a': 2}"),
        ({"d": date(2020, 1, 2), "n": None, "f": 0.5, "b": True}, "{'b': True, 'd': datetime.date(2020, 1, 2), 'f': 0.5, 'n': None}"),
        ([Login(), Hidden(a="secret"), iter(())], "[<Login>, <Hidden>, <tuple_iterator>]"),
    ],
)
def test_a_sample_shows_fields_and_calls_no_text_of_users(value: object, text: str) -> None:
    """A class with a `__repr__` of its own is shown by its type, and fields without `repr` are left out."""
    history, _ = fresh()
    edge = history.samples.edge("a", "b")
    history.samples.take(edge, None, value, 0)
    assert edge.records[-1].value == text


def odd() -> StreamsBuilder:
    builder = StreamsBuilder()
    odd = builder.stream("in", Consumed(STRING, STRING)).map_values(lambda _: Odd(), name="odd")
    long = odd.filter(lambda *_: True, name="kept").map_values(lambda _: "x" * 10_000, name="long")
    long.filter(lambda *_: True, name="cut").to("out", Produced(STRING, STRING))
    return builder


async def test_samples_cost_nothing_before_they_begin_and_after_they_end() -> None:
    """A task then makes the calls that it makes without; a value is cut, and one without a text fails no record."""
    with TopologyTestDriver(odd()) as driver:
        topic = driver.create_input_topic("in", STRING, STRING)
        samples = driver._parts.telemetry.history.samples
        topic.pipe_input("k", "v")
        before = calls(lambda: topic.pipe_input("k", "v"))
        samples.begin(60)
        assert calls(lambda: topic.pipe_input("k", "v")) > before
        values = {edge.target: edge.records[-1].value for edge in samples.edges()}
        assert values.keys() == {"node:KSTREAM-SOURCE-0000000000", "node:odd", "node:kept", "node:long", "node:cut"}
        assert values["node:odd"] == "'v'"
        assert values["node:kept"].startswith("<Odd, whose text raised AttributeError")
        assert len(values["node:cut"]) == 500
        samples.end()
        assert samples.edges() == []
        assert calls(lambda: topic.pipe_input("k", "v")) == before
