"""An app on a cluster of three brokers whose brokers are restarted one by one, killed, or frozen."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ks_actors import InstanceState
from tests.kafka.cluster import Cluster, cluster
from tests.kafka.counting import counting
from tests.waiting import until

__all__ = ["cluster"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
async def test_an_app_goes_on_through_a_rolling_restart_of_its_brokers(cluster: Cluster, tmp_path: Path, guarantee: str) -> None:
    """Each broker stops in turn: records are counted while it is away and after it is back, and the app runs all the time."""
    states: list[InstanceState] = []
    async with (
        counting(cluster, guarantee, tmp_path) as here,
        here.app("app", states, own_log=True, bootstrap_servers=cluster.bootstrap, replication_factor=3) as app,
    ):
        await here.through()
        for node in cluster.nodes:
            await asyncio.to_thread(node.stop)
            await here.through()
            await asyncio.to_thread(node.start)
            await asyncio.to_thread(cluster.wait)
            await cluster.replicated()
            await here.through()
        await until(lambda: app.health().ready)
        assert InstanceState.ERROR not in states
        assert app.state is InstanceState.RUNNING


@pytest.mark.timeout(300)
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_an_app_is_ready_while_one_of_its_brokers_is_away(cluster: Cluster, tmp_path: Path, guarantee: str, how: str) -> None:
    """Two brokers take over the partitions of the third: the app counts on, and is ready again though that one stays away."""
    async with (
        counting(cluster, guarantee, tmp_path) as here,
        here.app("app", own_log=True, bootstrap_servers=cluster.bootstrap, replication_factor=3) as app,
    ):
        await here.through()
        # The app notices the absence of a node that it reads from; it may have no more to do with another.
        node = await cluster.leader(here.source)
        await asyncio.to_thread(node.kill if how == "killed" else node.pause)
        await until(lambda: not app.health().ready)
        for _ in range(3):
            await here.through()
        await until(lambda: app.health().ready)
        assert app.metrics()["log-unreachable-ms"] == 0
