"""Placeholders such as `${PASSWORD}`, which some tools fill in, but this package does not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ks_actors.config._names import shown

if TYPE_CHECKING:
    from ks_actors.config._sources import Given

ENVIRONMENT: Final = "KS_ACTORS_"
_PLACEHOLDER: Final = re.compile(r"\$\{[^}]*\}")


def unfilled(name: str, entry: Given) -> list[str]:
    """Return the problem of a value with a placeholder; nothing for other values.

    Values from the environment and keywords are no problem: a password may contain such a text.
    """
    if entry.literal or not _has_placeholder(entry.value):
        return []
    told = f"{name} ({entry.origin}): {shown(name, entry.value)}"
    return [
        f"{told} has a placeholder, ${{…}}, that is not filled in from the environment: set "
        + ENVIRONMENT
        + name.upper()
    ]


def _has_placeholder(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_placeholder, value))
    return isinstance(value, str) and _PLACEHOLDER.search(value) is not None
