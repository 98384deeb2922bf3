"""The chaos tester's checks, against sequences made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE, Entry, Update, Verdict, check_changelog, check_output
from tests.chaos.partitions import murmur2

KEY = b"k"


@pytest.mark.parametrize(
    ("n", "counts", "sources", "violated", "figures"),
    [
        (4, [1, 2, 3, 4], None, False, {"lost": 0, "duplicated": 0}),
        (4, [1, 2, 4], None, True, {"lost": 1}),
        (4, [1, 2, 2, 3, 4], None, True, {"duplicated": 1, "reordered": 0}),
        (4, [1, 3, 2, 4], None, True, {"reordered": 1, "lost": 0}),
        (3, [1, 2, 3, 4], None, True, {"phantom": 1}),
        (2, [1, 2], [100, 100], True, {"wrong_source": 1}),
        (2, [1, 2], [100, 101], False, {"wrong_source": 0, "header_ids": True}),
        (4, [], None, True, {"lost": 4}),
        (1, [1, None], None, True, {"bad_value": 1}),
    ],
)
def test_exactly_once_is_one_to_n_in_order(
    n: int, counts: Sequence[int | None], sources: Sequence[int] | None, violated: bool, figures: dict[str, int]
) -> None:
    """Anything missing, repeated, out of order, too much, or made of another record is a violation."""
    found = verdict(n, counts, EXACTLY_ONCE, sources)
    assert bool(found.violations) == violated
    assert found.figures | figures == found.figures


@pytest.mark.parametrize(
    ("n", "counts", "sources", "violated", "figures"),
    [
        (4, [1, 2, 3, 3, 4], None, False, {"duplicated": 1}),
        (4, [1, 2, 3], None, True, {"lost": 1}),
        (4, [1, 2, 4, 5], None, False, {"gaps": 1, "overcount": 1}),
        (3, [1, 2, 3], [100, 102, 102], True, {"lost": 1}),
    ],
)
def test_at_least_once_loses_nothing(
    n: int, counts: Sequence[int | None], sources: Sequence[int] | None, violated: bool, figures: dict[str, int]
) -> None:
    """Repeated updates and gaps are no violation; a loss is, also one that is hidden by a repeated update."""
    found = verdict(n, counts, AT_LEAST_ONCE, sources)
    assert bool(found.violations) == violated
    assert found.figures | figures == found.figures


def verdict(n: int, counts: Sequence[int | None], guarantee: str, sources: Sequence[int] | None) -> Verdict:
    found: Sequence[int | None] = sources or [None] * len(counts)
    updates = [Update(0, KEY, count, source) for count, source in zip(counts, found, strict=True)]
    return check_output({KEY: list(range(100, 100 + n))}, updates, guarantee)


def test_a_key_stays_in_one_partition() -> None:
    """Of the output, as of the input."""
    found = check_output({KEY: [0, 1]}, [Update(0, KEY, 1, None), Update(1, KEY, 2, None)], EXACTLY_ONCE)
    assert found.violations == ["1 keys in more than one partition of the output"]


@pytest.mark.parametrize(
    ("values", "final", "guarantee", "violated"),
    [
        ([1, 2], 2, EXACTLY_ONCE, False),
        ([1], 2, EXACTLY_ONCE, True),
        ([2, 1, 2], 2, EXACTLY_ONCE, True),
        ([2, 1, 2], 2, AT_LEAST_ONCE, False),
    ],
)
def test_the_changelog_ends_with_the_final_count(values: list[int], final: int, guarantee: str, violated: bool) -> None:
    """Exactly once, the values of the changelog rise."""
    entries = [Entry(0, offset, KEY, value.to_bytes(8, "big")) for offset, value in enumerate(values)]
    assert bool(check_changelog(entries, {KEY: final}, guarantee)[1]) == violated


def test_values_of_the_changelog_may_begin_with_a_timestamp() -> None:
    """Any other length is none of a count's."""
    assert check_changelog([Entry(0, 0, KEY, bytes(8) + (1).to_bytes(8, "big"))], {KEY: 1}, EXACTLY_ONCE)[1] == []
    assert check_changelog([Entry(0, 0, KEY, b"odd"), Entry(0, 1, KEY, (1).to_bytes(8, "big"))], {KEY: 1}, EXACTLY_ONCE)[0]["bad"] == 1


def test_keys_go_to_kafkas_partitions() -> None:
    """The hashes are those of Kafka's own tests."""
    assert murmur2(b"21") == -973932308 & 0xFFFFFFFF
    assert murmur2(b"foobar") == -790332482 & 0xFFFFFFFF
