"""Packed rows of one key cost about as much in any order, and free the memory of replaced rows; windows of one key expire in one pass."""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ks_actors.kernel import HAS_KERNEL, kernel
from ks_actors.state.join_window._segment import Segment
from ks_actors.state.timed._expiry import take_out

pytestmark = pytest.mark.skipif(not HAS_KERNEL, reason="there is no kernel")
COUNT = 20_000
STEPS = 400
"""Links that a search follows or tries at most: it is 45 to 130 for this many rows, by the secret of hashes; a chain would take thousands."""

ORDERS: list[Callable[[list[int]], None]] = [lambda _: None, list.reverse, Random(3).shuffle, lambda starts: starts.sort(key=lambda start: start % 7)]


def filled(starts: list[int]) -> Any:
    """Return rows of one key with these starts, as many at a time as a batch has records."""
    rows = kernel.Rows(0, True, False)
    for first in range(0, len(starts), 500):
        some = starts[first : first + 500]
        rows.add_all(["k"] * len(some), some, list(range(first, first + len(some))), [b"%d" % start for start in some])
    return rows


@pytest.mark.parametrize("order", ORDERS, ids=["in order", "each before the last one", "in no order", "in seven runs"])
def test_a_late_row_costs_few_steps(order: Callable[[list[int]], None]) -> None:
    """For any order of timestamps, which is the producer's, a search passes few rows of a key that has many."""
    starts = list(range(COUNT))
    order(starts)
    rows = filled(starts)
    assert rows.steps() < STEPS * COUNT
    assert [start for start, _ in rows.entries("k", 0, COUNT)] == list(range(COUNT))


def test_late_records_meet_old_rows_in_few_steps() -> None:
    """Newer rows of the key are passed by, not gone through."""
    rows = filled(list(range(COUNT)))
    before = rows.steps()
    met: list[Any] = []
    rows.meet(["k"] * 500, [5] * 500, 1, 1, None, met)
    assert len(met) == 3 * 500
    assert rows.steps() - before < STEPS * 500


@pytest.mark.parametrize("cut", [1, 500])
def test_a_rollback_costs_few_steps_for_each_row_that_goes(cut: int) -> None:
    """Rows that stay are not touched, late or not."""
    rows = filled(list(range(COUNT, 0, -1)))
    before = rows.steps()
    rows.cut(COUNT - cut)
    assert rows.steps() - before < STEPS * cut
    assert [start for start, _ in rows.entries("k", 0, COUNT)] == list(range(cut + 1, COUNT + 1))


@pytest.mark.parametrize("seed", range(12))
def test_rows_of_hot_keys_are_like_objects(seed: int) -> None:
    """Added in any order, cut off and added again: the found rows are those of the Python code."""
    random = Random(seed)
    rows, plain, keys = kernel.Rows(-5, True, False), Segment(0), ["a", "b", "cold"][: random.randrange(1, 4)]
    for _ in range(25):
        count = random.choice((1, 40, 400))
        spread = random.choice((3, 200, 1 << 31))
        columns: list[list[Any]] = [
            random.choices(keys, weights=(60, 20, 1)[: len(keys)], k=count),
            [random.randrange(-5, spread) for _ in range(count)],
            list(range(len(plain), len(plain) + count)),
            [random.randbytes(random.choice((0, 5, 90))) for _ in range(count)],
        ]
        for segment in (rows, plain):
            segment.add_all(*columns)
        plain.committed = left = random.choice((len(plain), len(plain), len(plain) - random.randrange(count), random.randrange(len(plain))))
        plain.roll_back()
        rows.cut(left)
        for key in keys:
            first, last = sorted(random.choice((-9, -5, 0, 2, 150, 1 << 30, 1 << 40, 1 << 70)) for _ in range(2))
            places = list(plain.places(key, first, last))
            assert rows.places(key, first, last) == places
            assert rows.entries(key, first, last) == [(plain.starts[place], (plain.values[place], plain.times[place])) for place in places]
    assert rows.column(3, 0, len(plain)) == plain.values


def test_values_that_were_replaced_are_given_back() -> None:
    """One row that is written again and again, as in a restore, takes no more memory than a few of them, and a rollback leaves nothing."""
    rows = kernel.Rows(0, True, False)
    rows.add_all(["a", "b", "c"], [0, 1, 2], [1, 2, 3], [b"a" * 500, b"b", b"c"])
    for number in range(20_000):
        rows.replace(1, b"%d" % number * 200, number)
    assert sys.getsizeof(rows) < 1 << 20
    assert rows.column(3, 0, 9) == [b"a" * 500, b"19999" * 200, b"c"]
    assert rows.entries("b", 0, 9) == [(1, (b"19999" * 200, 19_999))]
    rows.cut(1)
    assert rows.entries("a", 0, 9) == [(0, (b"a" * 500, 0))]
    rows.cut(0)
    assert sys.getsizeof(rows) < 2_000


def test_rows_that_were_replaced_are_cut_and_found_in_any_order() -> None:
    """When their memory is moved together all links stay as they were, those of a key with many rows too."""
    random, plain = Random(5), Segment(0)
    starts = [random.randrange(900) for _ in range(2_000)]
    rows = filled(starts)
    plain.add_all(["k"] * len(starts), starts, range(len(starts)), [b"%d" % start for start in starts])
    for _ in range(3_000):
        place, value = random.randrange(len(plain)), random.randbytes(random.randrange(600))
        rows.replace(place, value, place)
        plain.replace(place, value, place)
        if random.random() < 0.01:
            plain.committed = len(plain) - random.randrange(20)
            plain.roll_back()
            rows.cut(plain.committed)
    places = list(plain.places("k", 100, 800))
    assert rows.places("k", 100, 800) == places
    assert rows.entries("k", 100, 800) == [(plain.starts[place], (plain.values[place], plain.times[place])) for place in places]
    assert sys.getsizeof(rows) < 3 * sum(map(len, plain.values)) + (1 << 20)


def test_a_rollback_leaves_the_rule_for_finding_rows() -> None:
    """A row that had a value when it came is found, one that had none is not: with any row put into its place, before a rollback and behind it."""
    rows, plain = kernel.Rows(0, True, False), Segment(0)
    for segment in (rows, plain):
        for number, value in enumerate((b"a", None, b"c", b"d")):
            segment.add("k", number, number, value, number)
        segment.replace(0, None, 9)
        segment.replace(1, b"b", 9)
    for left in (4, 3, 2, 1):
        plain.committed = left
        plain.roll_back()
        rows.cut(left)
        assert rows.places("k", 0, 9) == list(plain.places("k", 0, 9))
    assert rows.places("k", 0, 9) == [0]


@pytest.mark.parametrize("order", ORDERS[:3], ids=["in order", "backwards", "in no order"])
@pytest.mark.parametrize("limit", [-1, 0, COUNT // 2, COUNT, 1 << 70, -1 << 70])
def test_windows_of_a_hot_key_expire_as_in_python(order: Callable[[list[int]], None], limit: int) -> None:
    """However many are old, and wherever they are between those that stay."""
    starts = list(range(COUNT))
    order(starts)
    tracks: list[dict[Any, dict[int, Any]]] = [{"k": dict.fromkeys([*starts, 1 << 65]), "other": {5: "x"}} for _ in range(2)]
    keys = ["k", "none", "other", "k"]
    assert kernel.expire_windows(tracks[0], keys, limit) == take_out(tracks[1], keys, limit)
    assert tracks[0] == tracks[1]
    assert [list(track) for track in tracks[0].values()] == [list(track) for track in tracks[1].values()]
