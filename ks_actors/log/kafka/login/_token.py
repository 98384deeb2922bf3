"""Tokens for a login by OAUTHBEARER."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Token:
    """An access token; its repr does not show it.

    `expires_at` is in seconds since 1970; None: that of the token, if it is a JWT with `exp`, or
    not known. `extensions` are sent along, as some clouds ask for (`logicalCluster`).
    """

    value: str = field(repr=False)
    expires_at: float | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)


TokenProvider: TypeAlias = Callable[[], "str | Token | Awaitable[str | Token]"]
"""Returns a token. It is called in a thread, an async one on a loop of that thread."""
