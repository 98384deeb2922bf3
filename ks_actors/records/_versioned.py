"""Values that are valid from a time to a time."""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

V = TypeVar("V")

PUT_RETURN_CODE_VALID_TO_UNDEFINED: Final = -1
"""What a versioned store's `put` returns for what is the latest version now."""

PUT_RETURN_CODE_NOT_PUT: Final = -(1 << 63)
"""What a versioned store's `put` returns for what came too late."""


class VersionedRecord(NamedTuple, Generic[V]):
    """A value, the time (ms) from which on it is valid, and the time from which on it is not; None: it is the latest one."""

    value: V
    timestamp: int
    valid_to: int | None = None
