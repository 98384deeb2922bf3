"""Calls to an app from another event loop than its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ks_actors import App, StreamsConfig
from ks_actors.log import NewTopic
from ks_actors.log.embedded import EmbeddedLog
from tests.ks_actors.runtime.helpers import counting

CALLS: list[Callable[[App], Awaitable[Any]]] = [
    lambda app: app.close(),
    lambda app: app.pause(),
    lambda app: app.commit(),
    lambda app: app.add_worker(),
    lambda app: app.remove_worker(),
    lambda app: app.wait_until_caught_up(),
    lambda app: app.store("counts").get("a"),
    lambda app: app.store("counts").all(),
    lambda app: app.store_lags(),
]


async def test_a_call_on_another_event_loop_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    """A thread of a synchronous web server has no part in the app's loop: the error names the way there."""
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("in", 1), NewTopic("out", 1)])
        async with App(counting(), StreamsConfig(application_id="a", state_dir=tmp_path), log=log) as app:
            for call in CALLS:

                async def main(call: Callable[[App], Awaitable[Any]] = call) -> None:
                    await call(app)

                with pytest.raises(RuntimeError, match="run_coroutine_threadsafe"):
                    await asyncio.to_thread(asyncio.run, main())
            assert app.state.name == "RUNNING"
            loop = asyncio.get_running_loop()
            # The way that the error names.
            found = await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(app.store("counts").get("a"), loop).result())
            assert found is None
        assert app.state.name == "NOT_RUNNING"
        # Nothing is left that a loop could share.
        await asyncio.to_thread(asyncio.run, app.close())
