"""ksql's functions that mask characters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable


def mask(written: str, upper: str = "X", lower: str = "x", digit: str = "n", other: str = "-") -> str:
    def masked(sign: str) -> str:
        return upper if sign.isupper() else lower if sign.islower() else digit if sign.isdigit() else other

    return "".join(masked(sign) for sign in written)


def left(written: str, count: int, *signs: str) -> str:
    return mask(written[:count], *signs) + written[count:]


def right(written: str, count: int, *signs: str) -> str:
    at = max(len(written) - count, 0)
    return written[:at] + mask(written[at:], *signs)


def keep_left(written: str, count: int, *signs: str) -> str:
    return written[:count] + mask(written[count:], *signs)


def keep_right(written: str, count: int, *signs: str) -> str:
    at = max(len(written) - count, 0)
    return mask(written[:at], *signs) + written[at:]


MASKS: Final[dict[str, Callable[..., str]]] = {"": mask, "_LEFT": left, "_RIGHT": right, "_KEEP_LEFT": keep_left, "_KEEP_RIGHT": keep_right}
