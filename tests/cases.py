"""The cases of each test that a run has: a few, a part of the others, or those that a run of a few leaves out."""

from __future__ import annotations

import zlib
from collections.abc import Iterable


def few_of(ids: Iterable[str], count: int) -> set[str]:
    """Return `count` cases of each test at most, spread over all, which come in the order of their definition."""
    cases: dict[str, list[str]] = {}
    for each in ids:
        cases.setdefault(each.partition("[")[0], []).append(each)
    return {found[number * len(found) // count] for found in cases.values() for number in range(count)}


def part_of(ids: Iterable[str], part: str) -> set[str]:
    """Return the K-th of N parts by `K/N`, none for an empty text. A case stays in its part whatever others come and go: it goes by its hash."""
    if not part:
        return set()
    number, parts = map(int, part.split("/"))
    if not 0 <= number < parts:
        raise ValueError(f"there is no part {part}: give K/N with K from 0 to N - 1")
    return {each for each in ids if zlib.crc32(each.encode()) % parts == number}
