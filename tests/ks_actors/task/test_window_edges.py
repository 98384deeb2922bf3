"""The last moment at which a record is accepted, and the moment at which its window or row has expired."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from tests.ks_actors.task.window_edges import ENDS, KINDS, Case, differences, last, outcome


def _cases(kind: str, end: str, number: int) -> Iterator[Case]:
    seed = 0
    while number:
        case = Case.random(Random(seed))
        seed += 1
        if (case.kind, case.end) == (kind, end):
            number -= 1
            yield case


@pytest.mark.parametrize(("kind", "end"), [(kind, end) for kind in KINDS for end in ENDS if end == "update" or not kind.endswith("join")])
def test_accepted_records_find_their_windows(kind: str, end: str) -> None:
    """At every edge, with restarts, caches, and state that has left memory, all is as in stores that forget nothing."""
    for case in _cases(kind, end, 12):
        assert differences(case) == []


@pytest.mark.parametrize("cache_bytes", [0, 10_000])
@pytest.mark.parametrize("store", ["in_memory", "rocksdb"])
@pytest.mark.parametrize(("now", "count"), [(4, "2"), (5, "2"), (6, "1")])
def test_a_session_takes_records_until_it_is_closed(store: str, cache_bytes: int, now: int, count: str) -> None:
    """Up to stream time = end + gap + grace, that included, a record of the session counts on."""
    steps = [("in", "k1", 0, ""), ("in", "k2", now, ""), ("in", "k1", 0, "")]
    case = Case("sessions", "update", 5, 5, 0, None, store, cache_bytes, steps)
    assert last(outcome(case))["[k1@0/0]"] == count


@pytest.mark.parametrize("store", ["in_memory", "rocksdb"])
@pytest.mark.parametrize(("now", "session"), [(5, "[k1@0/4]"), (6, "[k1@4/4]")])
def test_a_session_that_is_closed_stays_so(store: str, now: int, session: str) -> None:
    """A record that is accepted begins another one then, as in Kafka Streams; up to that ms it joins."""
    steps = [("in", "k1", 0, ""), ("in", "k2", now, ""), ("in", "k1", 4, "")]
    assert session in last(outcome(Case("sessions", "update", 5, 5, 0, None, store, 0, steps)))


@pytest.mark.parametrize("store", ["in_memory", "rocksdb"])
def test_a_record_in_time_meets_the_first_one_that_it_may(store: str) -> None:
    """The record finds it even where another one of that moment has come before on the other side."""
    steps = [("other", "k", 0, ""), ("other", "x", 5, ""), ("in", "k", 5, "")]
    assert [row[1] for row in outcome(Case("inner join", "update", 5, 1, 0, None, store, 0, steps))] == [b"v2+v0"]
