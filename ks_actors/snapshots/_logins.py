"""Logins in URIs, which must not be shown."""

from __future__ import annotations

import re
from typing import Final

# Match up to the last @ before a slash, because a password may contain an @.
_LOGIN: Final = re.compile(r"(://)[^/\s]+@")


def without_login(text: str) -> str:
    """Return a text with `***` for the user and password of each URI in it."""
    return _LOGIN.sub(r"\1***@", text)
