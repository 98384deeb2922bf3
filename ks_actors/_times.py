"""Times that callers give: ints that count ms, or timedelta and datetime objects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

_MS: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def whole_ms(time: Any) -> Any:
    """Return a timedelta as an int, which counts ms, and any other value as it is.

    Raises ValueError for a part of a ms.
    """
    if not isinstance(time, timedelta):
        return time
    count, rest = divmod(time, _MS)
    if rest:
        raise ValueError(
            f"is not a whole number of ms: give timedelta(milliseconds={count}), or {count + 1}"
        )
    return count


def instant_ms(time: Any) -> Any:
    """Return a datetime as ms since 1970, rounded down, and any other value as it is.

    Raises ValueError for a datetime without a time zone.
    """
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        raise ValueError(
            "has no time zone: give time.replace(tzinfo=UTC) for a time in UTC, or "
            "time.astimezone() for a time of this machine"
        )
    return (time - _EPOCH) // _MS
