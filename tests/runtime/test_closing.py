"""Apps that are closed in the middle of something."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from ks_actors.runtime import InstanceState
from ks_actors.testing import run_app
from tests.runtime.helpers import GUARANTEES, Load, check_counts, counting

if TYPE_CHECKING:
    from ks_actors.testing import AppHarness


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("seed", range(10))
def test_an_app_may_be_closed_at_any_moment(seed: int, guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """In the middle of a rebalance, a commit or a restore: without an error, without a word to those who have ended, and results are exact."""
    random = Random(seed)

    async def test(harness: AppHarness) -> None:
        load = Load(harness, random)
        for _ in range(4):
            await load.send(random.randrange(100))
            async with harness.another(client_id=f"other-{random.random()}") as second:
                await load.send(random.randrange(100))
                await asyncio.sleep(random.choice([0.0, 0.01, 0.05, 0.1, 0.1005]))
                await harness.turns(random.randrange(100))
                if random.random() < 0.2:
                    second.lose_membership()
                    await harness.turns(random.randrange(20))
            assert second.app.state is InstanceState.NOT_RUNNING if second._app is not None else True
        await harness.caught_up()
        check_counts(await harness.read("out"), load.sent, guarantee)

    run_app(test, counting("rocksdb"), seed=seed, topics={"in": 4, "out": 1}, processing_guarantee=guarantee, commit_interval_ms=100)
    # What has been restored may be told too late: nothing comes of it.
    dead = [line for line in caplog.text.splitlines() if "dead letter" in line and "dead letter: Restored" not in line]
    assert dead == []
    assert "has stopped" not in caplog.text
