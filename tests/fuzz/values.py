"""Values that sessions draw: most of them ordinary, some at the limits of their type, some of classes that the kernel leaves to Python."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

LEAST: Final = -(1 << 63)
MOST: Final = (1 << 63) - 1
EDGES: Final = (0, 1, -1, 5, 1 << 31, 1 << 32, (1 << 32) - 1, 1 << 62, MOST, LEAST)
BEYOND: Final = (*EDGES, 1 << 63, LEAST - 1, 1 << 70)
PLAIN: Final = (str, bytes, int)


class Word(str):
    __slots__ = ()


class Bits(bytes):
    __slots__ = ()


class Number(int):
    __slots__ = ()


def text(random: Random) -> str:
    """Return one of few texts, of any width."""
    return random.choice(("", "k", "ü", "\U00010000", "a\0b")) + str(random.randrange(12)) + "x" * random.choice((0, 0, 3, 20, 200))


def odd_key(random: Random, *, of_text: bool) -> Any:
    """Return a key, sometimes of another class."""
    if random.random() < 0.1:
        return random.choice((text(random), text(random).encode(), Word("k1"), Bits(b"k1"), None, 5, "\ud800", bytearray(b"k"), (1,), 2.5))
    return text(random) if of_text else text(random).encode()


def any_key(random: Random) -> Any:
    """Return a key of a dict, of many classes; few are equal."""
    return random.choice(
        (
            f"k{random.randrange(9)}",
            f"k{random.randrange(9)}",
            b"b%d" % random.randrange(4),
            random.randrange(5),
            random.randrange(5) << 61,
            None,
            Word("k1"),
            Number(2),
            True,
            1.0,
            (1,),
            "ü",
        )
    )


def outcome(call: Callable[..., Any], *arguments: Any) -> tuple[Any, type[Exception] | None]:
    """Return the result of a call, or the class of its error."""
    try:
        return call(*arguments), None
    except Exception as error:  # noqa: BLE001 - which it is, is compared
        return None, type(error)


def clamped(number: int) -> int:
    """Return a time as `meet` takes it."""
    return min(max(0, number), MOST)
