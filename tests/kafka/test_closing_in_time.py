"""Apps that are closed while their broker is away."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from ks_actors import InstanceState
from ks_actors.log import NewMember
from ks_actors.runtime.shared._state_directory import StateDirectory
from tests.chaos.checks import GUARANTEES
from tests.kafka.broker import Broker
from tests.kafka.counting import counting
from tests.kafka.helpers import connect
from tests.ks_actors.log.helpers import by_turns, group_name, new_topic
from tests.waiting import until

BOUND_MS = 2_000
# A busy machine makes everything longer; without a bound it is minutes.
MUCH_LONGER_S = 20
RARE: dict[str, Any] = {"commit_interval_ms": 300_000, "transaction_timeout_ms": 600_000, "session_timeout_ms": 6_000}


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_an_app_whose_broker_is_away_ends_in_time(
    own_broker: Broker, tmp_path: Path, guarantee: str, caplog: pytest.LogCaptureFixture, *, frozen: bool
) -> None:
    """Frozen or gone: the rest is given up with a warning, no task and no thread is left, the directory is free, and the next app counts on."""
    async with counting(own_broker, guarantee, tmp_path) as here:
        tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
        app = here.app("app", own_log=True, bootstrap_servers=own_broker.bootstrap, **RARE)
        await here.feed()
        await app.start()
        await app.wait_until_caught_up(30_000)
        await here.feed(1_000)
        await until(lambda: app.metrics()["process-total"] >= 2_020)
        if frozen:
            own_broker.pause()
        else:
            own_broker.kill()
        async with asyncio.timeout(MUCH_LONGER_S):
            await app.close(timeout_ms=BOUND_MS)
        assert app.state is InstanceState.NOT_RUNNING
        assert "the app closes without a last commit of tasks 0_0, 0_1" in caplog.text
        assert [task.get_name() for task in asyncio.all_tasks() - tasks] == []
        assert [thread.name for thread in set(threading.enumerate()) - threads if "heartbeats" in thread.name] == []
        directory = StateDirectory(tmp_path / "app" / here.name)
        directory.open()
        directory.close()
        if frozen:
            own_broker.resume()
        else:
            await asyncio.to_thread(own_broker.start)
        async with here.app("app"):
            await here.counted()


async def test_a_log_closes_with_no_member_left_behind(own_broker: Broker) -> None:
    """A member whose closer was cancelled while the broker is frozen still leaves by a task: the log waits for that task when it closes."""
    log = await connect(own_broker)
    (partition,) = await new_topic(log)
    tasks = asyncio.all_tasks()
    new = NewMember(
        client_id="c", topics=[partition.topic], user_data=b"", assignor=by_turns, session_timeout_ms=10_000, rebalance_timeout_ms=30_000
    )  # fmt: skip
    member = await log.join(group_name(), new)
    await member.event()
    own_broker.pause()
    closing = asyncio.ensure_future(member.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert [task.get_name() for task in asyncio.all_tasks() - tasks if task.get_name() == "c leaves"] == ["c leaves"]
    async with asyncio.timeout(MUCH_LONGER_S):
        await log.close()
    assert [task.get_name() for task in asyncio.all_tasks() - tasks if task.get_name() == "c leaves"] == []
