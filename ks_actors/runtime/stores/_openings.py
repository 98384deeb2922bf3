"""The opening of many tasks' stores in one thread, one after the other."""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeAlias, final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

TURN_S: Final = 0.05
"""The time (s) after which a thread reports the stores that it has opened."""

Open: TypeAlias = "Callable[[], None]"


@final
class Openings:
    """Openings that take less time than a thread's start: those of tasks that share a database.

    Threads for each of them would only take the interpreter from one another and from the loop.
    `blocking` runs a function in a thread.
    """

    def __init__(
        self,
        blocking: Callable[
            [Callable[[], list[Exception | None]]], Awaitable[list[Exception | None]]
        ],
    ) -> None:
        self._blocking = blocking
        self._waiting: list[tuple[Open, asyncio.Future[None]]] = []
        self._running: bool = False

    async def run(self, open_stores: Open) -> None:
        """Run `open_stores` in a thread, after the earlier ones. Raises its error."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((open_stores, done))
        if not self._running:
            await self._run_all()
        await done

    async def _run_all(self) -> None:
        self._running = True
        try:
            while self._waiting:
                # Those that are added meanwhile are next.
                batch, self._waiting = self._waiting, []
                results = await self._blocking(partial(_in_turn, [each for each, _ in batch]))
                self._waiting = batch[len(results) :] + self._waiting
                for (_, done), error in zip(batch, results, strict=False):
                    if done.cancelled():
                        continue
                    if error is None:
                        done.set_result(None)
                    else:
                        done.set_exception(error)
        finally:
            self._running = False


def _in_turn(openings: Sequence[Open]) -> list[Exception | None]:
    """Run openings for about `TURN_S`; return the error of each that ran, or None."""
    results: list[Exception | None] = []
    until = perf_counter() + TURN_S
    for each in openings:
        try:
            each()
        except Exception as error:  # noqa: BLE001 - it is raised where this opening is awaited
            results.append(error)
        else:
            results.append(None)
        if perf_counter() > until:
            break
    return results
