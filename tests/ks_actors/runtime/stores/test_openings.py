"""Openings of many tasks, which share a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ks_actors import StateFull
from ks_actors.runtime.stores import _openings
from ks_actors.runtime.stores._openings import Openings

Run = Callable[[], list[Exception | None]]


@pytest.mark.parametrize("turn_s", [0.0, 60.0])
async def test_openings_run_one_after_the_other(turn_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order in which they were asked for; those that come meanwhile are next, and each raises its own error."""
    monkeypatch.setattr(_openings, "TURN_S", turn_s)
    ran: list[int] = []
    turns: list[int] = []
    more: list[asyncio.Task[None]] = []

    async def blocking(run: Run) -> list[Exception | None]:
        if not turns:
            more.extend(asyncio.create_task(openings.run(opening(number))) for number in (3, 4))
        results = await asyncio.to_thread(run)
        turns.append(len(results))
        return results

    def opening(number: int) -> Callable[[], None]:
        def run() -> None:
            ran.append(number)
            if number == 1:
                raise StateFull("no room for 1")

        return run

    openings = Openings(blocking)
    tasks = [asyncio.create_task(openings.run(opening(number))) for number in range(3)]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), StateFull, type(None)]
    assert await asyncio.gather(*more) == [None, None]
    assert ran == [0, 1, 2, 3, 4]
    assert max(turns) == (1 if not turn_s else 4)


async def test_an_opening_that_is_given_up_holds_up_no_other() -> None:
    """Its result is dropped, and the next ones have theirs."""
    openings = Openings(asyncio.to_thread)
    ran: list[int] = []
    tasks = [asyncio.create_task(openings.run(lambda number=number: ran.append(number))) for number in range(3)]  # type: ignore[misc]
    await asyncio.sleep(0)
    tasks[1].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), asyncio.CancelledError, type(None)]
    assert ran == [0, 1, 2]
