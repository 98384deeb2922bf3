"""The figures of `benchmarks/processes.py --kill`, by times of results that are known."""

from __future__ import annotations

from collections import Counter

from benchmarks._process_kills import WINDOW_S, Gaps, gaps_around, longest_gap, lost_and_doubled, typical_gap

EACH_S = 0.125
KILLED_S = 2 * WINDOW_S


def every(begin: float, end: float) -> list[float]:
    """Return the times of results that come evenly."""
    return [begin + number * EACH_S for number in range(int((end - begin) / EACH_S) + 1)]


def test_a_gap_counts_from_the_last_result_before_and_up_to_the_end() -> None:
    """The gap at the begin of the time counts whole, that at its end up to there; without any result the whole time is one."""
    assert longest_gap([1, 2, 5, 6], 3, 6) == 3
    assert longest_gap([1, 2, 5, 6], 5.5, 10) == 4
    assert longest_gap([1, 9], 1, 3) == 2
    assert longest_gap([], 2, 6) == 4
    assert typical_gap([1, 2, 3, 9], 0, 9) == 1
    assert typical_gap([1, 9], 0, 8) == 0


def test_gaps_of_a_kill_are_those_of_the_slowest_partitions_less_the_typical_one() -> None:
    """The killed member's partitions and the others are told apart, and pauses before the kill are no part of either."""
    until = KILLED_S + WINDOW_S
    times = {
        0: [*every(0, KILLED_S), *every(KILLED_S + 1, until)],
        1: [*every(0, KILLED_S), *every(KILLED_S + 1.5, until)],
        2: [*every(0, KILLED_S - 2), *every(KILLED_S - 1.75, until)],
        3: [*every(0, KILLED_S), *every(KILLED_S + 0.25, until)],
    }
    assert gaps_around(times, {0, 1}, KILLED_S, until) == Gaps(back=1_375, idle=125, raw_back=1_500, raw_idle=250, usual=250)


def test_a_record_is_lost_or_doubled_by_its_key_and_timestamp() -> None:
    """A count that is too high is an error only where each record is counted once."""
    fed = Counter[tuple[bytes | None, int, bytes | None]]({(b"a", 1, b"1"): 1, (b"a", 2, b"2"): 1, (b"b", 1, b"1"): 1})
    assert lost_and_doubled(fed, Counter(fed), exact=True) == (0, 0)
    counted_twice = Counter[tuple[bytes | None, int, bytes | None]]({(b"a", 1, b"1"): 1, (b"a", 1, b"2"): 1, (b"a", 2, b"3"): 1})
    assert lost_and_doubled(fed, counted_twice, exact=False) == (1, 1)
    assert lost_and_doubled(fed, counted_twice, exact=True) == (2, 2)
