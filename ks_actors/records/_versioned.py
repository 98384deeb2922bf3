"""Values that are valid from one time to another."""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

V = TypeVar("V")

PUT_RETURN_CODE_VALID_TO_UNDEFINED: Final = -1
"""The result of a versioned store's `put` for the latest version."""

PUT_RETURN_CODE_NOT_PUT: Final = -(1 << 63)
"""The result of a versioned store's `put` for a version that came too late."""


class VersionedRecord(NamedTuple, Generic[V]):
    """A value and its validity: from `timestamp` to before `valid_to` (ms).

    `valid_to` is None for the latest version.
    """

    value: V
    timestamp: int
    valid_to: int | None = None
