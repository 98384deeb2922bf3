"""Tokens for a login by OAUTHBEARER."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Token:
    """An access token; its repr does not show it.

    `expires_at` is in seconds since 1970; None means the time in the token if it is a JWT with
    `exp`, else unknown. `extensions` are sent with the token; some clouds require them
    (`logicalCluster`).
    """

    value: str = field(repr=False)
    expires_at: float | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)


TokenProvider: TypeAlias = Callable[[], "str | Token | Awaitable[str | Token]"]
"""Returns a token. It is called in a thread; an async function runs on a loop of that thread."""
