"""How much memory an object takes, roughly and quickly."""

from __future__ import annotations

from itertools import islice
from sys import getsizeof
from typing import Any, Final

TEXTS: Final = frozenset((str, bytes))
"""What is counted exactly, object by object."""

LOOK: Final = 8
"""Items of a container that are looked at: the others are taken to be alike."""


def weigh(value: Any) -> int:
    """Return about how many bytes an object takes, 0 of text: that is counted elsewhere."""
    return 0 if type(value) in TEXTS else _weigh(value, 4)


def size(value: Any) -> int:
    """Return about how many bytes an object takes, text too."""
    return _weigh(value, 4)


def average(typical: int, weight: int) -> int:
    """Return the typical weight after one more was seen, the latest count most."""
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
