"""Background tasks."""

from __future__ import annotations

import asyncio

import pytest

from ks_actors.lifecycle._background import in_background


async def _fail() -> None:
    raise ValueError("the work")


async def _wait(ended: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("work")


async def test_the_end_of_the_body_waits_for_the_work() -> None:
    """Whichever takes longer, both are done behind the block."""
    done: list[str] = []
    gate = asyncio.Event()

    async def work() -> None:
        await gate.wait()
        done.append("work")

    async with in_background(work(), "work"):
        done.append("body")
        gate.set()
    assert done == ["body", "work"]


async def test_the_end_of_the_body_raises_the_error_of_the_work() -> None:
    """The error comes at the end: the body is not interrupted."""
    reached = False
    with pytest.raises(ValueError, match="the work"):
        async with in_background(_fail(), "work"):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            reached = True
    assert reached


async def test_a_body_that_fails_ends_the_work() -> None:
    """Its own error is raised, and the work has ended by then."""
    ended: list[str] = []
    with pytest.raises(KeyError, match="the body"):
        async with in_background(_wait(ended), "work"):
            await asyncio.sleep(0)
            raise KeyError("the body")
    assert ended == ["work"]


async def test_of_two_errors_that_of_the_body_is_told() -> None:
    """The other one is not left for the loop to complain about, which would be an error of this test."""
    with pytest.raises(KeyError, match="the body"):
        async with in_background(_fail(), "work"):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            raise KeyError("the body")


async def test_a_cancelled_caller_ends_the_work() -> None:
    """In the body, and while its end waits for the work."""
    for in_body in (True, False):
        ended: list[str] = []

        async def both(in_body: bool = in_body, ended: list[str] = ended) -> None:
            async with in_background(_wait(ended), "work"):
                if in_body:
                    await asyncio.Event().wait()

        task = asyncio.ensure_future(both())
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["work"]
