"""Answers that refuse a request for now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors.log.kafka.client._connections import Unavailable
from ks_actors.log.kafka.wire import RETRIABLE, SOON, STALE_METADATA, name_of

if TYPE_CHECKING:
    from collections.abc import Iterable


def raise_retriable(codes: Iterable[int], who: str) -> None:
    """Raise Unavailable for the first error code that a retry may cure; `who` has answered."""
    for code in codes:
        if code in RETRIABLE:
            raise Unavailable(
                f"{who} answered {name_of(code)}",
                refresh=code in STALE_METADATA,
                soon=code in SOON,
            )
