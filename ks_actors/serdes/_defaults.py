"""Serdes with parts that the app's default completes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ks_actors.serdes import Serde

_WRAPPED: Final = ("inner", "left", "right")


def with_default(serde: Serde[Any] | None, default: Serde[Any] | None) -> Serde[Any] | None:
    """Return a serde with its missing parts replaced by the app's default.

    For None, return the default. In a serde that lacks its wrapped serde, wrap the default.
    """
    if serde is None:
        return default
    or_default = getattr(serde, "or_default", None)
    return serde if or_default is None else or_default(default)


def wraps_key(serde: Any) -> bool:
    """Return whether this serde of values wraps a serde of keys, so needs the default of keys."""
    return getattr(serde, "wraps_key", False) is True


def is_complete(serde: Any) -> bool:
    """Return whether this is a complete serde: no wrapped serde waits for the app's default."""
    return serde is not None and all(
        is_complete(getattr(serde, part)) for part in _WRAPPED if hasattr(serde, part)
    )
