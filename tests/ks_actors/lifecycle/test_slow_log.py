"""A wait that takes long is logged."""

from __future__ import annotations

import asyncio

import pytest

from ks_actors.lifecycle._slow_log import warn_if_slow
from tests.ks_actors.runtime.helpers import in_virtual_time


@in_virtual_time
async def test_a_long_wait_is_logged_with_its_subject(caplog: pytest.LogCaptureFixture) -> None:
    """After ten seconds, once; shorter waits, and failures, are not logged."""

    async def after(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"

    async def fail() -> None:
        raise OSError("it does not go")

    assert await warn_if_slow("a commit", "the disk", after(9)) == "done"
    with pytest.raises(OSError, match="does not go"):
        await warn_if_slow("a commit", "the disk", fail())
    await asyncio.sleep(20)
    assert caplog.text == ""
    assert await warn_if_slow("a commit", "the disk", after(30)) == "done"
    assert [record.message for record in caplog.records] == ["a commit is still waiting for the disk after 10 s"]
