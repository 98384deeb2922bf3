"""Libraries of the extra `registry`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def extra(library: str) -> Iterator[None]:
    """Say which extra a missing library belongs to."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"this serde needs {library}: pip install 'ks-actors[registry]'", name=missing.name
        ) from missing
