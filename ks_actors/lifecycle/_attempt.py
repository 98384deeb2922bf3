"""Steps that must all be taken, even when some fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable


async def try_step(step: Awaitable[object], errors: list[Exception]) -> None:
    """Take a step; add its error to `errors`."""
    try:
        await step
    except Exception as error:  # noqa: BLE001 - the first of them is raised when all is done
        errors.append(error)
