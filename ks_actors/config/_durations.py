"""Durations in ISO 8601, as Kafka's tools and settings write them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

_DURATION: Final = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)


def duration(text: str) -> timedelta:
    """Return the length of a duration such as PT2H, P1DT30M or PT0.5S. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()[1:]) or text.upper().endswith("T"):
        raise ValueError("is not a duration such as PT2H, P1DT30M or PT0.5S")
    days, hours, minutes, seconds = (float(each or 0) for each in found.groups()[1:])
    try:
        length = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        raise ValueError("is too long") from None
    return -length if found[1] == "-" else length
