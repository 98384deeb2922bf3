"""Rough and quick estimates of an object's size in memory."""

from __future__ import annotations

from itertools import islice
from sys import getsizeof
from typing import Any, Final

TEXTS: Final = frozenset((str, bytes))
"""Types that the stores count exactly, object by object."""

LOOK: Final = 8
"""The items of a container that are measured: the others are assumed alike."""


def weigh(value: Any) -> int:
    """Return the approximate bytes of an object; 0 for text, which is counted elsewhere."""
    return 0 if type(value) in TEXTS else _weigh(value, 4)


def size(value: Any) -> int:
    """Return the approximate bytes of an object, text included."""
    return _weigh(value, 4)


def average(typical: int, weight: int) -> int:
    """Return the moving average of a typical weight; the latest weight counts a quarter."""
    return typical + (weight - typical) // 4 if typical else weight


def _weigh(value: Any, depth: int) -> int:
    size = getsizeof(value, 64)
    if depth == 0 or type(value) in TEXTS:
        return size
    items: Any
    if isinstance(value, dict):
        items = [part for pair in islice(value.items(), LOOK) for part in pair]
        share = len(value) / max(1, len(items) // 2)
    elif isinstance(value, list | tuple | set | frozenset):
        items = list(islice(value, LOOK))
        share = len(value) / max(1, len(items))
    else:
        names: Any = getattr(value, "__struct_fields__", None) or getattr(value, "__dict__", ())
        items = [getattr(value, name, None) for name in islice(names, LOOK)]
        share = 1
    return size + int(share * sum(_weigh(item, depth - 1) for item in items))
