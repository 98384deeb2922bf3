"""Waits of tests."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from actors.testing import VirtualLoop
from tests.waiting import REST_S, until


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, VirtualLoop])
def test_a_wait_that_is_over_tells_its_condition(loop: type[asyncio.AbstractEventLoop]) -> None:
    """A condition that does not come fails by its source, on a loop in virtual time too; or by the given words."""
    with asyncio.Runner(loop_factory=loop) as runner:
        with pytest.raises(AssertionError, match=r"not within 0 s: .*lambda: bool\(0\)"):
            runner.run(until(lambda: bool(0), within=0))
        with pytest.raises(AssertionError, match="not within 0 s: a miracle"):
            runner.run(until(lambda: False, "a miracle", within=0))


def test_a_wait_rests_in_real_time_alone() -> None:
    """Between two looks of a real loop there are at least 2 ms for others; a look moves no virtual time."""
    for loop, rest in ((asyncio.new_event_loop, REST_S), (VirtualLoop, 0)):
        looks = count()

        async def look(looks: count[int] = looks) -> float:
            began = asyncio.get_running_loop().time()
            await until(lambda: next(looks) == 10)
            return asyncio.get_running_loop().time() - began

        with asyncio.Runner(loop_factory=loop) as runner:
            spent = runner.run(look())
        assert spent >= 10 * rest if rest else spent == 0
