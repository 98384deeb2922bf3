"""Steps of which each is due whatever becomes of the others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")


async def try_step(step: Awaitable[object], errors: list[Exception]) -> None:
    """Take a step; note what it fails by."""
    try:
        await step
    except Exception as error:  # noqa: BLE001 - the first of them is raised when all is done
        errors.append(error)


async def whole(step: Awaitable[T]) -> T:
    """Take a step to its end also when cancelled, which is raised behind it: a thread goes on anyway. Cancelled twice, let it be."""
    taken = asyncio.ensure_future(step)
    try:
        return await asyncio.shield(taken)
    except asyncio.CancelledError:
        await asyncio.wait({taken})
        raise
